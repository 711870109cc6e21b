"""Attention of skip-wise rows is not cut at the jump (public report T4)."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk.data.batch import Batch, attention_inputs


def tiny(attention: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    config._attn_implementation = attention
    return LlamaForCausalLM(config).eval()


def skip_batch(rows: int) -> Batch:
    torch.manual_seed(1)
    ids_BT = torch.randint(0, 64, (rows, 24))
    positions_BT = torch.arange(24).repeat(rows, 1)
    positions_BT[:, 10:] += 300
    return Batch(ids_BT, positions_BT, ids_BT, ("text",) * rows)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("rows", [1, 3])
def test_attention_reaches_over_the_jump(attention, rows):
    model, batch = tiny(attention), skip_batch(rows)
    inputs = attention_inputs(batch)
    causal = torch.full((24, 24), float("-inf")).triu(1).expand(rows, 1, 24, 24)
    with torch.no_grad():
        ours = model(**inputs, use_cache=False).logits
        explicit = model(**{**inputs, "attention_mask": causal}, use_cache=False).logits
        bare = model(input_ids=batch.input_ids_BT, position_ids=batch.position_ids_BT, use_cache=False).logits
    torch.testing.assert_close(ours, explicit, rtol=1e-5, atol=1e-6)
    # control: without the mask the second chunk does not see the first, and before the jump all is the same
    torch.testing.assert_close(bare[:, :10], explicit[:, :10], rtol=1e-5, atol=1e-6)
    assert (bare[:, 10:] - explicit[:, 10:]).abs().max() > 1e-3


def test_a_token_before_the_jump_changes_what_comes_after():
    model, batch = tiny("sdpa"), skip_batch(1)
    with torch.no_grad():
        before = model(**attention_inputs(batch), use_cache=False).logits
        batch.input_ids_BT[0, 3] = (batch.input_ids_BT[0, 3] + 1) % 64
        after = model(**attention_inputs(batch), use_cache=False).logits
    assert (before[0, 12:] - after[0, 12:]).abs().max() > 1e-5
