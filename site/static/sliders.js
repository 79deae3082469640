// Four figures with controls. Node prints their first state into the pages; in a browser the controls redraw them.
"use strict";

// The formulas are the kit's own: labs/results/cost_model.py, labs/pages/at_scale.py, labs/training/schedule.py,
// labs/pages/lab05.py. tests/site/test_sliders.py compares them. Seconds, bytes, bytes per second.
const model = {
    ringSeconds: (nbytes, n, latency, bandwidth) => 2 * (n - 1) * (latency + nbytes / (n * bandwidth)),
    treeSeconds: (nbytes, n, latency, bandwidth) => 2 * Math.ceil(Math.log2(n)) * (latency + nbytes / bandwidth),
    halvingSeconds: (nbytes, n, latency, bandwidth) =>
        2 * Math.ceil(Math.log2(n)) * latency + 2 * (n - 1) / n * nbytes / bandwidth,
    busbw: (nbytes, seconds, n) => nbytes / seconds * 2 * (n - 1) / n,

    allreduceSeconds(nbytes, workers, latency, bandwidth, perNode) {
        const local = Math.min(perNode, workers), nodes = Math.ceil(workers / local);
        const messages = Math.max(1, Math.ceil(nbytes / (64 * 2 ** 20))), size = nbytes / messages;
        const between = nodes > 1 ? Math.min(...["ringSeconds", "treeSeconds", "halvingSeconds"].map(
            (name) => model[name](size, nodes, latency, bandwidth))) : 0;
        return messages * (between + model.ringSeconds(size, local, 5e-6, 10e9));
    },
    exposedSeconds: (communication, step, overlap) =>
        Math.max((1 - overlap) * communication, communication - 2 / 3 * step),
    step(workers, compute, nbytes, latency, bandwidth, perNode, overlap) {
        const allreduce = model.allreduceSeconds(nbytes, workers, latency, bandwidth, perNode);
        const exposed = model.exposedSeconds(allreduce, compute, overlap);
        return { allreduce, exposed, step: compute + exposed, efficiency: compute / (compute + exposed) };
    },

    scaledLr: (baseLr, k, rule) => baseLr * { none: 1, sqrt: Math.sqrt(k), linear: k }[rule],
    warmupLr: (step, start, peak, warmupSteps) =>
        start + (peak - start) * (warmupSteps ? Math.min(step / warmupSteps, 1) : 1),

    // State s is after step s: cells[rank][chunk] lists the ranks in that sum, and `got` the chunk that a rank got.
    ringStates(n) {
        const states = [{ cells: range(n).map((rank) => range(n).map(() => [rank])), got: range(n).map(() => -1) }];
        for (let step = 0; step < 2 * (n - 1); step++) {
            const before = states[step].cells, cells = before.map((row) => [...row]), got = [];
            for (let rank = 0; rank < n; rank++) {
                const to = (rank + 1) % n, chunk = (rank - step + 2 * n) % n, sent = before[rank][chunk];
                cells[to][chunk] = step < n - 1 ? [...before[to][chunk], ...sent].sort((a, b) => a - b) : sent;
                got[to] = chunk;
            }
            states.push({ cells, got });
        }
        return states;
    },
};

function range(n) { return [...Array(n).keys()]; }
const digits = (value) => (Number.isInteger(value) ? value : Number(value.toPrecision(3)))
    .toLocaleString("en-US", { maximumFractionDigits: 9 });
function unit(value, names, base = 1000) {
    const found = names.find(([size], i) => value >= size * (1 - 1e-9) || i === names.length - 1);
    return `${digits(value / found[0])} ${found[1]}`;
}
const seconds = (value) => unit(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
const binary = (value) => unit(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
const decimal = (value) => unit(value, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const bits = (bandwidth) => unit(8 * bandwidth, [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]]);
const percent = (value) => `${(100 * value).toFixed(value > 0.995 && value < 1 ? 1 : 0)} %`;
const geometric = (low, high, n = 60) => range(n + 1).map((i) => low * (high / low) ** (i / n));
const even = (low, high, n = 60) => range(n + 1).map((i) => low + (high - low) * i / n);
const powers = (low, high, by) => range(Math.round(Math.log(high / low) / Math.log(by)) + 1).map((i) => low * by ** i);

// A control is a range over a list of values, so each step of the keyboard is a value worth seeing.
const slider = (label, values, first, show) => ({ label, values, first, show });
const BANDWIDTHS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 200, 400].map((gigabits) => gigabits * 1e9 / 8);
const count = (name) => (value) => `${digits(value)} ${name}${value === 1 ? "" : "s"}`;

// Axes: { low, high, log, ticks, show }; x may also have the points that lines connect.
// A line: [class, function of x]. `at` is the x of the marker.
const label = (x, y, anchor, text) => `<text x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;

function chart(title, xLabel, x, y, lines, at) {
    const place = (axis, from, to) => (value) => {
        const f = axis.log ? Math.log : (v) => v;
        return from + (to - from) * (f(Math.max(value, axis.low)) - f(axis.low)) / (f(axis.high) - f(axis.low));
    };
    const px = place(x, 62, 344), py = place(y, 196, 30);
    const grid = [
        ...x.ticks.map((v) => `<path class="grid" d="M${px(v)} 30V196"/>` + label(px(v), 213, "middle", x.show(v))),
        ...y.ticks.map((v) => `<path class="grid" d="M62 ${py(v)}H344"/>` + label(57, py(v) + 4, "end", y.show(v))),
    ].join("");
    const points = x.points ?? (x.log ? geometric : even)(x.low, x.high);
    const curve = ([name, f]) => `<polyline class="line ${name}" points="${points
        .map((v) => `${px(v).toFixed(1)},${py(f(v)).toFixed(1)}`).join(" ")}"/>`;
    const mark = at === undefined ? "" : `<path class="mark" d="M${px(at)} 30V196"/>` + lines.map(([name, f]) =>
        `<circle class="${name}" cx="${px(at).toFixed(1)}" cy="${py(f(at)).toFixed(1)}" r="4"/>`).join("");
    return `<svg viewBox="0 0 360 236" role="img" aria-label="${title} over ${xLabel}">`
        + `<text class="title" x="62" y="18">${title}</text>${grid}${lines.map(curve).join("")}${mark}`
        + `${label(203, 232, "middle", xLabel)}</svg>`;
}
const logAxis = (low, high, by, show) => ({ low, high, log: true, ticks: powers(low, high, by), show });
const evenAxis = (high, show) => ({ low: 0, high, ticks: even(0, high, 4), show });
const key = (lines) => `<span class="key">${lines.map(([name, text]) =>
    `<span><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line ${name}" d="M0 4H24"/></svg> ${text}</span>`)
    .join(" ")}</span>`;

const sliders = {
    message: {
        title: "An all-reduce over a link, by the formulas",
        controls: {
            n: slider("ranks N", [2, 4, 8, 16, 32, 64], 2, count("rank")),
            latency: slider("latency α", [1e-6, 2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3], 5, seconds),
            bandwidth: slider("bandwidth 1/β", BANDWIDTHS, 6, bits),
            nbytes: slider("message M", powers(2 ** 10, 2 ** 30, 2), 12, binary),
        },
        draw({ n, latency, bandwidth, nbytes }) {
            const names = ["ring", "tree", "halving"];
            const times = names.map((name) => [name, (M) => model[`${name}Seconds`](M, n, latency, bandwidth)]);
            const speeds = times.map(([name, time]) => [name, (M) => model.busbw(M, time(M), n)]);
            const x = logAxis(2 ** 10, 2 ** 30, 2 ** 5, binary), t = times[0][1](nbytes), busbw = speeds[0][1](nbytes);
            return {
                plots: [chart("time", "message (log scales)", x, logAxis(1e-6, 1e3, 1e3, seconds), times, nbytes),
                    chart("bus bandwidth", "message (log scale)", x, evenAxis(bandwidth, bits), speeds, nbytes)],
                text: key([["ring", "ring"], ["tree", "tree"], ["halving", "halving-doubling"]])
                    + `A ring takes <b>${seconds(t)}</b>: algbw ${bits(nbytes / t)}, busbw <b>${bits(busbw)}</b>, `
                    + `<b>${percent(busbw / bandwidth)}</b> of the link. Half of its time is latency at M = N α / β = `
                    + `${decimal(n * latency * bandwidth)}. A tree takes ${seconds(times[1][1](nbytes))}, `
                    + `halving-doubling ${seconds(times[2][1](nbytes))}.`,
            };
        },
    },
    ring: {
        title: "A ring all-reduce, step by step",
        controls: {
            n: slider("ranks N", [2, 3, 4, 5, 6, 7, 8], 2, count("rank")),
            step: slider("step", (values) => range(2 * values.n - 1), 2, String),
        },
        draw({ n, step }) {
            const state = model.ringStates(n)[step], wide = 300 / n, high = 190 / n, stripe = (wide - 6) / n;
            const cells = range(n).flatMap((rank) => range(n).map((chunk) => {
                const x = 56 + chunk * wide, y = 26 + rank * high, ranks = state.cells[rank][chunk];
                const box = (left, width) => `x="${x + 3 + left}" y="${y + 3}" width="${width}" height="${high - 6}"/>`;
                return ranks.map((from) => `<rect style="fill:hsl(${360 * from / n} 60% 55%)" `
                    + box(from * stripe, stripe)).join("")
                    + `<rect class="cell${state.got[rank] === chunk ? " got" : ""}" ${box(0, wide - 6)}`;
            })).join("");
            const names = range(n).map((i) => label(50, 30 + (i + 0.5) * high, "end", `rank ${i}`)
                + label(56 + (i + 0.5) * wide, 16, "middle", `${n < 6 ? "chunk " : ""}${i}`)).join("");
            const phase = step === 0 ? "The start: each rank has only its own values." : step < n
                ? `Reduce-scatter: each rank r sent chunk (r − ${step - 1}) mod ${n} to the next, which added it.`
                : `All-gather: each rank r sent the finished chunk (r − ${step - 1}) mod ${n} to the next.`;
            return {
                plots: ['<svg viewBox="0 0 360 220" role="img" aria-label="ranks as rows, chunks as columns; a stripe '
                    + `for each rank in a sum">${names}${cells}</svg>`],
                text: `Step <b>${step} of ${2 * (n - 1)}</b>. ${phase} Each rank has sent <b>${step}/${n} M</b> of `
                    + `2 (N − 1)/N M = ${digits(2 * (n - 1) / n)} M. Thick outline: the cell just received. `
                    + "Filled cell: a complete sum.",
            };
        },
    },
    rates: {
        title: "Batch, learning rate and scaling rules",
        controls: {
            n: slider("workers N", powers(1, 64, 2), 3, count("worker")),
            batch: slider("batch b of a worker", powers(8, 256, 2), 2, count("image")),
            baseLr: slider("η for B₀ = 32", [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1], 3, digits),
            rule: slider("rule", ["none", "sqrt", "linear"], 2, (rule) => rule === "sqrt" ? "square root" : rule),
            warmup: slider("warmup", [0, 1, 2, 3, 4, 5], 3, count("epoch")),
        },
        draw({ n, batch, baseLr, rule, warmup }) {
            const globalBatch = n * batch, k = globalBatch / 32, steps = Math.ceil(50000 / globalBatch);
            const peak = (name) => model.scaledLr(baseLr, k, name), end = peak(rule);
            const course = end === baseLr || !warmup ? `is <b>${digits(end)}</b> from the first step on`
                : `${end > baseLr ? "rises" : "falls"} from ${digits(baseLr)} to <b>${digits(end)}</b> in `
                    + `${digits(warmup * steps)} steps`;
            const lines = ["none", "sqrt", "linear"].map((name) => [`${name}${name === rule ? " chosen" : ""}`,
                (epoch) => model.warmupLr(Math.floor(epoch * steps), baseLr, peak(name), warmup * steps)]);
            return {
                plots: [chart("learning rate", "epoch", { low: 0, high: 10, ticks: [0, 2, 4, 6, 8, 10], show: digits },
                    evenAxis(Math.max(baseLr, peak("linear")), digits), lines)],
                text: key([["none", "none"], ["sqrt", "square root"], ["linear", "linear"]])
                    + `Global batch N b = <b>${digits(globalBatch)} images</b>, so k = N b / B₀ = <b>${digits(k)}`
                    + `</b>. The learning rate ${course}. An epoch of 50,000 images has ${digits(steps)} steps.`,
            };
        },
    },
    scale: {
        title: "A step on N workers, by the model of this page",
        controls: {
            workers: slider("workers N", powers(1, 4096, 2), 6, count("worker")),
            perNode: slider("workers per node", [1, 2, 4, 8], 3, digits),
            bandwidth: slider("bandwidth of a node", BANDWIDTHS, 6, bits),
            compute: slider("computation", [0.005, 0.01, 0.02, 0.035, 0.05, 0.1, 0.2, 0.5, 1], 5, seconds),
            nbytes: slider("gradients", [1e5, 1e6, 5e6, 2e7, 4.5e7, 1e8, 2.5e8, 5e8, 1e9], 5, decimal),
            overlap: slider("share that can hide", [0, 0.3, 0.5, 0.7, 0.9, 1], 3, percent),
        },
        draw({ workers, perNode, bandwidth, compute, nbytes, overlap }) {
            const at = (n, link) => model.step(n, compute, nbytes, 25e-6, link, perNode, overlap);
            const now = at(workers, bandwidth), slowest = at(workers, BANDWIDTHS[0]).step;
            const top = 10 ** Math.ceil(Math.log10(slowest) + 1e-9), low = 10 ** Math.floor(Math.log10(compute) + 1e-9);
            return {
                plots: [
                    chart("time of a step", "bandwidth (log scales)",
                        { ...logAxis(12.5e6, 12.5e9, 10, bits), high: 50e9 },
                        logAxis(low, Math.max(top, 10 * low), 10, seconds),
                        [["tree", () => compute], ["ring", (link) => at(workers, link).step]], bandwidth),
                    chart("efficiency", "workers (log scale)",
                        { ...logAxis(1, 4096, 8, digits), points: powers(1, 4096, 2) },
                        evenAxis(1, percent), [["ring", (n) => at(n, bandwidth).efficiency]], workers)],
                text: key([["ring", "step"], ["tree", "computation alone"]])
                    + `A step takes <b>${seconds(now.step)}</b>: ${seconds(compute)} of computation and `
                    + `${seconds(now.exposed)} of exposed all-reduce (of ${seconds(now.allreduce)} in all). `
                    + `Efficiency <b>${percent(now.efficiency)}</b>. No worker waits for a slow one here; a message `
                    + "between nodes has 25 µs of latency.",
            };
        },
    },
};

const listValues = (control, values) => typeof control.values === "function" ? control.values(values) : control.values;

// The values at these positions; a later control's list may depend on earlier values.
function read(name, positions) {
    return Object.entries(sliders[name].controls).reduce((values, [key_, control]) => {
        const list = listValues(control, values);
        return { ...values, [key_]: list[Math.min(positions[key_], list.length - 1)] };
    }, {});
}

function markup(name) {
    const { title, controls, draw } = sliders[name];
    const values = read(name, Object.fromEntries(Object.entries(controls).map(([key_, { first }]) => [key_, first])));
    const { plots, text } = draw(values);
    const inputs = Object.entries(controls).map(([key_, control]) => {
        const shown = control.show(values[key_]);
        return `<label><span>${control.label}</span> <output>${shown}</output><input type="range" name="${key_}" `
            + `min="0" max="${listValues(control, values).length - 1}" value="${control.first}" `
            + `aria-label="${control.label}" aria-valuetext="${shown}"></label>`;
    });
    return `<figure class="slider" data-slider="${name}"><figcaption>${title}</figcaption><div class="slider-controls">`
        + `${inputs.join("")}</div><div class="slider-plots">${plots.join("")}</div>`
        + `<p class="slider-text" aria-live="polite">${text}</p></figure>`;
}

function redraw(figure) {
    const name = figure.dataset.slider, inputs = [...figure.querySelectorAll("input")];
    const values = read(name, Object.fromEntries(inputs.map((input) => [input.name, Number(input.value)])));
    for (const input of inputs) {
        const control = sliders[name].controls[input.name], shown = control.show(values[input.name]);
        input.max = listValues(control, values).length - 1;
        input.setAttribute("aria-valuetext", shown);
        input.parentElement.querySelector("output").textContent = shown;
    }
    const { plots, text } = sliders[name].draw(values);
    figure.querySelector(".slider-plots").innerHTML = plots.join("");
    figure.querySelector(".slider-text").innerHTML = text;
}

if (typeof document === "undefined") {
    module.exports = { model, markup, names: Object.keys(sliders) };
} else {
    document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".slider").forEach((figure) => {
        figure.classList.add("live");
        figure.addEventListener("input", () => redraw(figure));
        redraw(figure); // A browser keeps the positions when a page is loaded again.
    }));
}
