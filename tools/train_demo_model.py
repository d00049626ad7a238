"""Train the demo model: a 1.3M-parameter Llama on tinyshakespeare, saved in Hugging Face layout.

Needs PyTorch, transformers and tokenizers (none of which the package itself needs) and takes about a minute on a GPU:

    python tools/train_demo_model.py corpus.txt out/

The corpus is public-domain text (Shakespeare, as collected in the char-rnn repository). A byte-level BPE vocabulary of
1,024 tokens is trained first. The last 5 % of the text is held out; the checkpoint with the lowest held-out loss is
kept.

Provenance: this script made `cupy_turbo/assets/demo` on one GPU; the weights are released with the project under its
licence.
"""

import json
import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

CORPUS, OUT = Path(sys.argv[1]), Path(sys.argv[2])
CONTEXT, BATCH, STEPS, WARMUP, PEAK_LR = 256, 64, int(sys.argv[3]) if len(sys.argv) > 3 else 3000, 100, 2e-3

OUT.mkdir(parents=True, exist_ok=True)
text = CORPUS.read_text()
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(
    [text[: int(len(text) * 0.95)]],
    trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ),
)
tokenizer.save(str(OUT / "tokenizer.json"))

ids = torch.tensor(tokenizer.encode(text).ids, device="cuda")
cut = int(len(ids) * 0.95)
train, held_out = ids[:cut], ids[cut:]
config = LlamaConfig(
    vocab_size=1024,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=6,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,
    max_position_embeddings=1024,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=0,
    attention_dropout=0.1,
    initializer_range=0.02,
    dtype="bfloat16",
)
torch.manual_seed(0)
model = LlamaForCausalLM(config).cuda().float()
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(ids):,} tokens")
drop = 0.15  # on every block's output while training
for layer in model.model.layers:
    for block in (layer.self_attn.o_proj, layer.mlp.down_proj):
        block.register_forward_hook(lambda m, i, o: F.dropout(o, drop, training=m.training))
optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.98), weight_decay=0.1)


def rows(source, n, generator=None):
    start = torch.randint(len(source) - CONTEXT - 1, (n,), device="cuda", generator=generator)
    return source[start[:, None] + torch.arange(CONTEXT + 1, device="cuda")]


def loss_of(batch):
    logits = model(batch[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def evaluate():
    model.eval()
    generator = torch.Generator("cuda").manual_seed(1)
    loss = sum(loss_of(rows(held_out, 64, generator)) for _ in range(8)) / 8
    model.train()
    return loss.item()


best, started = math.inf, time.time()
for step in range(STEPS):
    lr = PEAK_LR * min((step + 1) / WARMUP, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / STEPS)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_of(rows(train, BATCH))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 200 == 199:
        held = evaluate()
        print(f"step {step + 1} train {loss.item():.3f} held-out {held:.3f}  {time.time() - started:.0f} s", flush=True)
        if held < best:
            best = held
            kept = {k: v.detach().to(torch.bfloat16).clone() for k, v in model.state_dict().items()}
model.load_state_dict(kept)
model = model.to(torch.bfloat16).eval()
model.config.dtype = "bfloat16"
model.save_pretrained(OUT)
(OUT / "tokenizer_config.json").write_text(
    json.dumps(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|endoftext|>",
            "bos_token": None,
            "model_max_length": 1024,
        },
        indent=1,
    )
)

# What a correct engine must reproduce: float32 arithmetic on the bfloat16 weights.
model = model.float()
golden = {"held_out_loss": best, "prompts": []}
for prompt in (
    "ROMEO:",
    "First Citizen:\nBefore we proceed any further,",
    "KING RICHARD III:\nNow is the winter",
    "\n",
):
    x = torch.tensor([tokenizer.encode(prompt).ids], device="cuda")
    with torch.no_grad():
        logits = model(x).logits[0, -1]
        y = model.generate(x, max_new_tokens=64, do_sample=False, pad_token_id=0)[0, x.shape[1] :]
    golden["prompts"].append(
        {
            "prompt": prompt,
            "prompt_ids": x[0].tolist(),
            "greedy_ids": y.tolist(),
            "greedy_text": tokenizer.decode(y.tolist()),
            "last_logits_top5": [[int(i), float(logits[i])] for i in logits.topk(5).indices],
        }
    )
    print("=====", repr(prompt), "\n" + golden["prompts"][-1]["greedy_text"])
    torch.manual_seed(1)
    z = model.generate(x, max_new_tokens=120, do_sample=True, temperature=0.8, top_k=0, top_p=0.95, pad_token_id=0)[0]
    print("--- sampled\n" + tokenizer.decode(z.tolist()))
(OUT / "golden.json").write_text(json.dumps(golden, indent=1))
