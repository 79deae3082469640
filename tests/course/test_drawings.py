"""Drawings: what they show is computed, all of their text can be read, and a rank has one colour in all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text

from labs.course import drawings, plots
from labs.run.errors import LabError
from tests.measure.test_timeline import begin, end, tensor

START = 1_795_451_724.0
LAYERS = {"dense": 1280, "conv2": 18_432, "conv1": 864}
"""Elements of each layer's gradient, the last layer first."""


def timeline_of_a_step(marks: bool = True, fused: bool = False) -> list[dict]:
    """Return Horovod's events of one step of two ranks, of which rank 1 is 4 ms late; times in microseconds."""
    events = [{"name": "process_name", "ph": "M", "pid": 0,
               "args": {"start_time_since_epoch_in_micros": int(1e6 * START)}}]
    events += [tensor(number, f"HorovodAllreduce_DistributedSGD_{layer}") for number, layer in enumerate(LAYERS, 1)]
    for number in range(1, 4):
        ready = 15_000 + 9000 * number
        events.append(begin(number, "NEGOTIATE_ALLREDUCE", ready))
        if marks:
            events += [{"ph": "X", "name": str(rank), "ts": ready + 4000 * rank, "pid": number, "dur": 0}
                       for rank in (0, 1)]
        events.append(end(number, ready + 5000))
    order = [[1, 2, 3]] if fused else [[1], [2], [3]]
    for numbers in order:
        at = 15_000 + 9000 * numbers[-1] + 5000
        events += [begin(number, name, at + late) for name, late in (("ALLREDUCE", 0), ("MPI_ALLREDUCE", 200))
                   for number in numbers]
        events += [end(number, at + 3000) for number in numbers]
        events += [end(number, at + 3100, dtype="float32", shape=f"[{[*LAYERS.values()][number - 1]}]")
                   for number in numbers]
    return events


def computation(ranks: int = 2) -> list[dict]:
    """Return what each rank computes around `timeline_of_a_step`."""
    rows = []
    for rank in range(ranks):
        late = START + 0.004 * rank
        rows.append({"rank": rank, "phase": "forward", "name": "", "began": START, "ended": late + 0.02})
        rows += [{"rank": rank, "phase": "backward", "name": layer, "began": late + 0.02 + 0.007 * number,
                  "ended": late + 0.027 + 0.007 * number} for number, layer in enumerate(LAYERS)]
        rows.append({"rank": rank, "phase": "apply", "name": "", "began": START + 0.051, "ended": START + 0.056})
    return rows


def bowl(first, second):
    return 0.5 * first**2 + 3 * second**2


TRACKS = [[(3, 1.5), (1, 0.2), (0.4, -0.1)], [(3, 1.5), (1.6, -0.4), (0.9, 0.3)]]
PANELS = {"no broadcast": TRACKS, "no all-reduce": TRACKS, "both": [TRACKS[0]] * 2}
FIGURES = {
    **{f"step_cost, {len(sizes)} sizes": lambda sizes=sizes: drawings.step_cost(0.006, 0.0004, sizes)
       for sizes in ([1], [8, 32, 128], [1, 8, 32, 128, 256, 512, 1024, 8192])},
    "step_cost of a GPU": lambda: drawings.step_cost(0.0195, 38e-6, [128, 1024]),
    **{f"data_parallel of {n}": lambda n=n: drawings.data_parallel(n) for n in (1, 2, 4, 8)},
    **{f"ring of {n}": lambda n=n: drawings.ring(n) for n in (2, 3, 4, 5)},
    **{f"step {step} of a ring of {n}": lambda n=n, step=step: drawings.ring(n, step)
       for n, step in ((2, 1), (4, 0), (4, 6), (8, 9))},
    "topologies": drawings.topologies,
    "topologies of two": lambda: drawings.topologies([4**power for power in range(1, 15)], 2, 25e-6, 8e-9),
    "epoch_over_time": lambda: drawings.epoch_over_time(1.0, 0.25, 0.3),
    "epoch_over_time of four": lambda: drawings.epoch_over_time(0.02, 0.001, 0.0, 4, 12),
    **{f"weak_and_strong, {sizes}": lambda sizes=sizes: drawings.weak_and_strong(128, sizes)
       for sizes in ([1, 2, 4], [1], [2, 8])},
    "step_gantt": lambda: drawings.step_gantt(timeline_of_a_step(), computation()),
    "step_gantt, fused": lambda: drawings.step_gantt(timeline_of_a_step(marks=False, fused=True)),
    "step_gantt, four ranks": lambda: drawings.step_gantt(timeline_of_a_step(), computation(4)),
    "step_gantts": lambda: drawings.step_gantts({
        "cycle 1 ms": drawings.seen_step(timeline_of_a_step(), computation()),
        "cycle 20 ms, fusion": drawings.seen_step(timeline_of_a_step(fused=True), computation()),
        "a timeline alone": drawings.seen_step(timeline_of_a_step(marks=False))}),
    "loss_paths": lambda: drawings.loss_paths(TRACKS, bowl),
    "loss_paths, three panels": lambda: drawings.loss_paths(PANELS, bowl),
}


@pytest.fixture(params=FIGURES)
def figure(request):
    made = FIGURES[request.param]()
    FigureCanvasAgg(made)
    made.draw_without_rendering()
    return made


def texts(figure) -> list[Text]:
    """Return the texts that can be seen; an axis also holds labels of ticks beyond its ends."""
    beyond = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        beyond |= {label for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
                   if not low <= tick.get_loc() <= high for label in (tick.label1, tick.label2)}
    return [each for each in figure.findobj(Text)
            if each.get_visible() and each.get_text().strip() and each not in beyond]


def test_a_figure_is_as_wide_as_a_page_and_white_under_any_style(figure):
    assert figure.get_size_inches()[0] <= drawings.WIDTH
    assert to_hex(figure.get_facecolor()) == "#ffffff"
    assert min(each.get_fontsize() for each in texts(figure)) >= 7


def test_axes_have_labels_with_units(figure):
    shown = [axes for axes in figure.axes if axes.axison]
    units = ("bytes", "seconds", "rank", "weight", "images")
    for axes in shown:
        ticks = axes.get_yticklabels() or [shown[0].yaxis.label]  # Panels share the label of the first.
        beside = [other for other in shown if other.get_xlabel()]  # Panels above each other share the last one's.
        for label in (axes.get_xlabel() or beside[-1].get_xlabel(), axes.get_ylabel() or ticks[0].get_text()):
            assert any(unit in label for unit in units), label


def test_a_step_is_a_bar_of_its_fixed_cost_and_a_bar_of_its_images():
    axes = drawings.step_cost(0.006, 0.0004, [8, 128]).axes[0]
    fixed, images = axes.containers
    assert [bar.get_width() for bar in fixed] == pytest.approx([6, 6]), "milliseconds"
    assert [bar.get_width() for bar in images] == pytest.approx([3.2, 51.2])
    assert [bar.get_x() for bar in images] == pytest.approx([6, 6]), "the second bar begins where the first one ends"
    assert [text.get_text() for text in axes.texts] == ["870 images/s; 65% fixed", "2,238 images/s; 10% fixed"]
    assert "2,500 images/s" in axes.get_title()
    ends = [bar.get_x() + bar.get_width() for bar in images]
    assert all(text.get_position()[0] > end for text, end in zip(axes.texts, ends, strict=True))


@pytest.mark.parametrize("costs", [(-0.001, 0.0004, [8]), (0.006, 0.0, [8]), (0.006, -0.0004, [8]),
                                   (0.006, 0.0004, []), (0.006, 0.0004, [0, 8]), (0.006, 0.0004, range(1, 10))])
def test_a_step_without_cost_and_too_many_bars_are_refused(costs):
    with pytest.raises(LabError, match=r"no step has|shows 1 to 8 batch sizes"):
        drawings.step_cost(*costs)


def test_an_epoch_divides_compute_and_neither_communication_nor_start():
    axes = drawings.epoch_over_time(1.0, 0.25, 0.3, 2, 5).axes[0]
    ends = {}
    for bar in axes.patches:
        lane = round(bar.get_y() + bar.get_height() / 2, 6)
        assert bar.get_x() == pytest.approx(ends.get(lane, 0)), "bars follow one another"
        ends[lane] = bar.get_x() + bar.get_width()
    assert list(ends.values()) == pytest.approx([5.3, 0.3 + 3 * 1.25, 0.3 + 3 * 1.25]), "three steps: rounded up"
    assert axes.get_title() == "T(1) = 5.3 s, T(2) = 4.05 s: S(2) = 1.31, not 2"
    assert len(axes.texts) == 5 + 3 + 3


def test_weak_scaling_holds_a_workers_images_and_strong_scaling_those_of_all():
    weak, strong = drawings.weak_and_strong(128, [1, 2, 4]).axes
    for axes, totals in ((weak, [128, 256, 512]), (strong, [128] * 3)):
        images = {}
        for bar in axes.patches:
            images.setdefault(bar.get_y(), []).append(bar.get_width())
        assert [sum(each) for each in images.values()] == totals
        assert [len(each) for each in images.values()] == [1, 2, 4]
    assert weak.get_xlim() == strong.get_xlim(), "one scale"


@pytest.mark.parametrize("wrong", [lambda: drawings.epoch_over_time(1, 1, 1, 5), lambda: drawings.weak_and_strong(3),
                                   lambda: drawings.epoch_over_time(1, 1, 1, 2, 13),
                                   lambda: drawings.epoch_over_time(1, 1, 1, 1),
                                   lambda: drawings.weak_and_strong(16, [16])])
def test_what_an_epoch_or_a_step_cannot_show_is_refused(wrong):
    with pytest.raises(LabError, match=r"this figure shows|cannot be divided among"):
        wrong()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("elements", [7, 12])
def test_a_ring_ends_with_the_sum_on_all_ranks(n, elements):
    values = np.random.default_rng(n).integers(-100, 100, (n, elements))
    before = values.copy()
    states = drawings.ring_steps(list(values))
    assert len(states) == 2 * (n - 1) + 1
    assert (states[0].values == before).all()
    assert (states[-1].values == before.sum(axis=0)).all()
    assert (values == before).all(), "the caller's arrays are left alone"


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_each_rank_sends_the_least_that_an_allreduce_can(n):
    values = [np.ones(24 * n, np.float32) for _ in range(n)]
    states = drawings.ring_steps(values)
    assert (states[-1].sent_bytes == 2 * (n - 1) / n * values[0].nbytes).all()
    assert [state.phase for state in states[1:]] == ["reduce-scatter"] * (n - 1) + ["all-gather"] * (n - 1)
    for state in states[1:]:
        assert sorted(send.source for send in state.sends) == sorted(send.target for send in state.sends) == [*range(n)]


def test_after_the_reduce_scatter_each_rank_has_one_complete_chunk():
    n = 4
    middle = drawings.ring_steps([np.full(n, 10**rank) for rank in range(n)])[n - 1].values
    assert [np.flatnonzero(row == 1111).tolist() for row in middle] == [[1], [2], [3], [0]]
    assert sorted(middle[0]) == [1, 1001, 1101, 1111]


@pytest.mark.parametrize("wrong", [[[1, 2], [1, 2, 3]], [1, 2], [[1, 2], 3]])
def test_a_ring_of_unequal_arrays_is_refused(wrong):
    with pytest.raises(LabError, match="same shape"):
        drawings.ring_steps(wrong)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_ring_has_a_panel_for_each_step(n):
    figure = drawings.ring(n)
    assert len(figure.axes) == 2 * (n - 1)
    sent = [axes.get_title().rpartition("\nsent so far: ")[2] for axes in figure.axes]
    assert sent == [f"{step}/{n} M" for step in range(1, 2 * n - 1)]
    assert f"{2 * (n - 1)}/{n} M" in figure.get_suptitle()


def test_a_cell_has_a_stripe_for_each_rank_in_its_sum():
    panels = drawings.ring(4).axes
    stripes = [sum(each.get_label().startswith("rank") for each in axes.patches) for axes in panels]
    states = drawings.ring_steps([np.tile(np.eye(4, dtype=int)[rank], (4, 1)) for rank in range(4)])
    assert stripes == [int((state.values > 0).sum()) for state in states[1:]]
    for axes in panels:
        for each in axes.patches:
            if each.get_label().startswith("rank"):
                rank = int(each.get_label().split()[1])
                assert to_hex(each.get_facecolor()) == plots.RANK_COLOURS[rank].lower()


@pytest.mark.parametrize("call", [lambda: drawings.ring(1), lambda: drawings.ring(6), lambda: drawings.ring(9, 1),
                                  lambda: drawings.ring(4, 7), lambda: drawings.ring(4, -1),
                                  lambda: drawings.data_parallel(9)])
def test_a_figure_that_cannot_be_read_is_refused(call):
    with pytest.raises(LabError):
        call()


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("topology", drawings.COSTS)
def test_messages_of_a_topology_reduce_and_agree_with_its_formula(topology, n):
    """Carry out the messages on sets of ranks: in the end every rank has heard of all others."""
    known = [[{rank} for _ in range(n)] for rank in range(n)]  # By rank and chunk.
    for number, step in enumerate(drawings.messages(topology, n)):
        sent = [(source, target, [set(known[source][chunk]) for chunk in range(n)]) for source, target, _ in step]
        for source, target, chunks in sent:
            for chunk in ([(source - number) % n] if topology == "ring" else range(n)):
                known[target][chunk] |= chunks[chunk]
    assert all(each == set(range(n)) for row in known for each in row)
    row = drawings.topology_table(1e6, n, 50e-6, 8e-10).loc[topology]
    assert row["seconds"] == pytest.approx(drawings.COSTS[topology](1e6, n, 50e-6, 1.25e9))
    assert row["bytes_sent"] == pytest.approx(2 * (n - 1) * 1e6), "all three send as many bytes in total"


def test_the_table_counts_steps_and_bytes_of_the_busiest_rank():
    table = drawings.topology_table(1000, 8)
    assert table["steps"].to_dict() == {"naive": 14, "tree": 6, "ring": 14}
    assert table["most_bytes_sent"].to_dict() == {"naive": 7000, "tree": 3000, "ring": 1750}


def test_the_tree_wins_below_the_size_in_the_title_and_the_ring_above():
    size, (n, alpha, beta) = drawings._break_even(8, 50e-6, 8e-10), (8, 50e-6, 8e-10)
    tree, ring = drawings.COSTS["tree"], drawings.COSTS["ring"]
    assert tree(size, n, alpha, 1 / beta) == pytest.approx(ring(size, n, alpha, 1 / beta))
    assert tree(size / 2, n, alpha, 1 / beta) < ring(size / 2, n, alpha, 1 / beta)
    assert "118 kB" in drawings.topologies(None, n, alpha, beta).axes[0].get_title()
    assert drawings._break_even(2, alpha, beta) is None, "two ranks: the ring is never slower"


def test_a_gantt_has_a_lane_for_each_activity_of_each_rank():
    axes = drawings.step_gantt(timeline_of_a_step(), computation()).axes[0]
    lanes = [label.get_text() for label in axes.get_yticklabels()]
    assert lanes == [f"rank {rank}: {lane}" for rank in (0, 1) for lane in ("compute", "negotiate", "all-reduce")]
    shown = [each.get_text() for each in axes.texts]
    assert {"forward", "apply", "dense", "conv2", "conv1"} <= set(shown)
    assert len(axes.patches) == 2 * (5 + 3 + 3)
    assert "56 ms" in axes.get_title()
    assert "4 ms, for that of rank 1" in axes.get_title()
    assert "end 5 ms after the last gradient" in axes.get_title()


def test_a_negotiation_begins_when_the_rank_announces_its_tensor():
    axes = drawings.step_gantt(timeline_of_a_step()).axes[0]
    for rank, milliseconds in ((0, 5), (1, 1)):
        colour = np.array(to_rgb(plots.RANK_COLOURS[rank]))
        light = [bar for bar in axes.patches if np.allclose(bar.get_facecolor()[:3], 1 - 0.25 * (1 - colour))]
        assert [bar.get_width() for bar in light] == pytest.approx([milliseconds] * 3)


def test_fused_tensors_are_one_allreduce():
    axes = drawings.step_gantt(timeline_of_a_step(marks=False, fused=True)).axes[0]
    assert len(axes.patches) == 3 + 1
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0: negotiate", "rank 0: all-reduce"]
    assert axes.texts[-1].get_text().endswith(f"{4 * sum(LAYERS.values()) / 1000:.3g} kB")


def test_small_gantts_have_one_axis_of_time_and_tell_what_differs():
    long = [row | {"ended": row["ended"] + 0.044} if row["phase"] == "apply" else row for row in computation()]
    figure = drawings.step_gantts({"separate": drawings.seen_step(timeline_of_a_step(), computation()),
                                   "fused": drawings.seen_step(timeline_of_a_step(fused=True), long)})
    separate, fused = figure.axes
    assert separate.get_title(loc="left") == "separate: 56 ms, 3 messages; the last ends 5 ms after the last gradient"
    assert fused.get_title(loc="left").startswith("fused: 100 ms, 1 message;")
    assert separate.get_xlim() == fused.get_xlim() == pytest.approx((-1, 101))
    assert len(separate.patches) == 2 * (5 + 3 + 3)
    assert len(fused.patches) == 2 * (5 + 3 + 1)


def test_the_typical_step_is_the_one_of_median_length():
    rows = [row | {"step": number, "ended": row["ended"] + late * (row["phase"] == "apply")}
            for number, late in enumerate((0.5, 0.02, 0)) for row in computation()]
    events = timeline_of_a_step()[:4] + 3 * timeline_of_a_step()[4:]
    seen = drawings.typical_step(events, rows)
    assert seen.ended - seen.began == pytest.approx(0.076)


def test_without_computations_or_exchanges_nothing_is_exposed():
    assert drawings.seen_step(timeline_of_a_step()).exposed == 0
    assert drawings.seen_step([], computation()).exposed == 0
    assert drawings.seen_step(timeline_of_a_step(), computation()).exposed == pytest.approx(0.005, rel=1e-4)


def test_a_step_that_is_not_in_the_timeline_is_refused():
    with pytest.raises(LabError, match="no step 1"):
        drawings.step_gantt(timeline_of_a_step(), step=1)


def test_paths_of_ranks_that_exchange_are_one():
    apart, together = drawings.loss_paths(TRACKS, bowl), drawings.loss_paths([TRACKS[0]] * 3, bowl)
    assert f"{math.dist(TRACKS[0][-1], TRACKS[1][-1]):.2g} apart" in apart.axes[0].get_title()
    assert "at most 0 apart" in together.axes[0].get_title()
    lines = [line for line in together.axes[0].lines if line.get_label().startswith("rank")]
    assert [line.get_color() for line in lines] == list(plots.RANK_COLOURS[:3])
    assert np.diff([line.get_linewidth() for line in lines]).max() < 0, "thinner, so that all can be seen"
    with pytest.raises(LabError, match="two columns"):
        drawings.loss_paths([[1, 2, 3]], bowl)


def test_panels_of_paths_have_one_scale_and_each_its_distance():
    panels = drawings.loss_paths(PANELS, bowl).axes
    assert [axes.get_title().splitlines()[0] for axes in panels] == list(PANELS)
    assert [axes.get_title().endswith(" 0 apart") for axes in panels] == [False, False, True]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in panels}) == 1


def test_every_rank_has_a_colour_that_differs():
    assert len(set(plots.RANK_COLOURS)) == len(plots.RANK_COLOURS) == drawings.MOST_RANKS
