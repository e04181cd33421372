"""The load-time probe's verdict and worst errors for many architectures, as a table.

    python benchmarks/probe.py            # writes benchmarks/results/probe.md

Random weights, small dimensions: what is tried is each family's way to attend, which does not depend on size. A family
that the probe refuses is sampled with the padded decoder; the last column is its error against the plain forward pass.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
import transformers
from machine import describe, publish, sized

from rlfactory_core.engines.local.decoding.decoder import Request
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.model.loading import make_policy
from rlfactory_core.types import SamplingParams

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from tiny_models import PADDED, RAGGED, eager_logprobs, make_model, random_ids  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "probe.md"
TITLE = "| architecture | runs | sampling | training | gradient | probe, s | sampled turns |"


def row(name: str) -> str:
    """One line of the table."""
    model = make_model(name)
    begun = time.perf_counter()
    policy, report = make_policy(model)
    seconds = time.perf_counter() - begun
    decoder = make_decoder(policy, slots=4, prefix=(), stop_token_ids=())
    asked = [Request(str(i), random_ids(size, i), SamplingParams(16, seed=i)) for i, size in enumerate((5, 70, 23))]
    finished = decoder.admit(asked)
    while decoder.active:
        finished += decoder.step()
    model.set_attn_implementation("eager")
    worst = 0.0
    with torch.no_grad():
        for request, tokens in finished:
            expected = eager_logprobs(model, (*request.ids, *tokens.token_ids))[-len(tokens.token_ids) :]
            worst = max(worst, float((torch.tensor(tokens.logprobs) - expected).abs().max()))
    errors = (report.sampling_error, report.training_error, report.gradient_error)
    cells = ["-" if math.isnan(error) else f"{error:.1e}" for error in errors]
    kind = type(model).__name__.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
    verdict = "ragged" if report.passed else f"padded: {report.reason}"
    return "| " + " | ".join([kind, verdict, *cells, f"{seconds:.2f}", f"{worst:.1e}"]) + " |"


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = [row(name) for name in sized((*RAGGED, *PADDED), (next(iter(RAGGED)), next(iter(PADDED))))]
    lines = [
        "# The load-time probe",
        "",
        "`python benchmarks/probe.py`: worst errors over all tokens, fp32. Sampling (prefix, prefill, decode) and",
        "training (packed, shared prefix): log-probs in nats against the model's own eager forward pass. Gradient:",
        "relative to its largest entry. Sampled turns: log-probs that the decoder in use recorded against the same",
        "forward pass.",
        "",
        TITLE,
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Machine: {describe()}.",
    ]
    publish(RESULTS, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
