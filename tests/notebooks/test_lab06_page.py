"""Lab 6's page: a PSNR stands beside that of the noisy pictures, and a listing begins at its beginning."""

from __future__ import annotations

import pytest

from tests.notebooks.committed import cell, printed, table

LAB = "lab06_memory"


def test_the_network_is_better_than_doing_nothing():
    """20.90 dB was shown alone, after six steps; the noisy pictures have 20.17."""
    rows = table(cell(LAB, '"trial_mb"'))
    assert set(rows) == {("1",), ("2",)}
    for row in rows.values():
        assert float(row["noisy_psnr"]) == pytest.approx(20.17, abs=0.02), "20 log10(255 / 25)"
        assert float(row["test_psnr"]) > float(row["noisy_psnr"]) + 2
        assert float(row["peak_mb"]) > float(row["trial_mb"])


def test_the_answer_about_psnr_names_the_baseline():
    answers = table(cell(LAB, "PSNR of single and two GPUs"))
    psnr = [row["test_psnr"] for row in table(cell(LAB, '"trial_mb"')).values()]
    output = answers[("PSNR of single and two GPUs",)]["here"]
    assert output == f"{float(psnr[0]):.2f} and {float(psnr[1]):.2f} dB; of the noisy pictures 20.17 dB"


def test_the_listing_begins_with_its_first_line():
    """It began with "layers.Input(": "noisy = " had been cut off."""
    assert printed(cell(LAB, "inspect.getsource(denoising.denoiser)")).startswith("    noisy = layers.Input(")
