"""Tiny configs of the supported model families, and one example of every method in every form."""

from collections.abc import Callable
from typing import Any

import pytest
from transformers import GPTNeoXConfig, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config
from transformers.configuration_utils import PreTrainedConfig

from ropewalk.positional import BaseRope, Method, parse_method

WINDOW = 64
SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": WINDOW,
    "pad_token_id": 0,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "mistral": lambda: MistralConfig(**SIZES, num_key_value_heads=1, head_dim=16),
    "qwen2": lambda: Qwen2Config(
        **SIZES, num_key_value_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    ),
    "qwen3": lambda: Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=64),
    "phi3": lambda: Phi3Config(**SIZES),
    "gpt_neox": lambda: GPTNeoXConfig(**SIZES),
}


def method_texts(num_freqs: int) -> list[str]:
    """Every method, in every form, for a model that rotates `num_freqs` pairs."""
    divisors = "/".join(str(1 + 7 * i / num_freqs) for i in range(num_freqs))
    return [
        "none:8",
        "linear:8",
        "ntk:8",
        "ntk:8,form=alpha,alpha=12",
        "ntk:8,form=critical",
        "abf:8,theta=3000000",
        "yarn:8",
        "yarn:32,truncate=False",
        "yarn:8,beta_fast=16,beta_slow=2,attention_factor=1",
        "yarn:8,ramp=turns",
        "yarn:8,ramp=harmonic",
        "llama3:8",
        "by_parts:8",
        f"longrope:8,divisors={divisors}",
        f"longrope:8,divisors={divisors},attention_factor=1.5",
        "resonance:8",
        "resonance:8,of=linear",
        "cope:8",
        "cope:8,theta=1000000,num=2",
        "p_rope:8",
        "p_rope:8,share=0.5",
        "dynamic:8",
    ]


NUM_FORMS = len(method_texts(1))


@pytest.fixture(params=FAMILIES)
def config(request: pytest.FixtureRequest) -> PreTrainedConfig:
    """A tiny config of each family, pretrained at 64 tokens."""
    return FAMILIES[request.param]()


@pytest.fixture
def llama() -> PreTrainedConfig:
    """One family, where the family does not matter."""
    return FAMILIES["llama"]()


@pytest.fixture(scope="session")
def methods_for() -> Callable[[BaseRope], list[Method]]:
    """Every method in every form, for a base."""
    return lambda base: [parse_method(text) for text in method_texts(base.num_freqs)]


@pytest.fixture(params=range(NUM_FORMS), ids=[text[:40].split("divisors")[0] for text in method_texts(1)])
def method_text(request: pytest.FixtureRequest) -> Callable[[BaseRope], str]:
    """Each form in turn, written out for a base."""
    return lambda base: method_texts(base.num_freqs)[request.param]
