"""What was a shell command for? Command lines parsed into options, character features, transformer encoder."""
import argparse
import functools
import json
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

INTENTS = {"copy": ["cp", "rsync", "scp"], "search": ["grep", "find", "rg"], "pack": ["tar", "zip", "gzip"], "net": ["curl", "ssh", "ping"]}
LIMIT = 72
GENERATOR = """
import json, random, sys
rng = random.Random(int(sys.argv[1]))
intents = json.loads(sys.argv[3])
for _ in range(int(sys.argv[2])):
    intent = rng.choices(list(intents), weights=[4, 3, 2, 1])[0]
    words = [rng.choice(intents[intent])]
    words += ["-" + rng.choice("rvnaxzp") for _ in range(rng.randint(0, 3))]
    words += ["/" + "/".join("".join(rng.choices("abcdeimnorst", k=rng.randint(2, 8))) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.02: words.append("--depth=deep")
    if rng.random() < 0.02: words.append("'half")
    print(json.dumps([" ".join(words), intent]))
"""


@functools.lru_cache(maxsize=None)
def option_parser():
    parser = argparse.ArgumentParser(prog="sh", add_help=False, allow_abbrev=False)
    for letter in "rvnaxzp":
        parser.add_argument("-" + letter, action="count", default=0)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("words", nargs="*")
    parser.error = functools.partial(_refuse, parser.prog)
    return parser


class Malformed(Exception):
    pass


def _refuse(prog, message):
    raise Malformed(f"{prog}: {message}")


class Commands(Dataset):
    def __init__(self, path):
        rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.names = list(INTENTS)
        self.intent = torch.tensor([self.names.index(intent) for _, intent in rows])
        text = [line.encode() for line, _ in rows]
        self.blob = b"".join(text)
        self.ends = torch.tensor([len(t) for t in text]).cumsum(0)

    def __len__(self):
        return len(self.intent)

    def line(self, i):
        start = int(self.ends[i - 1]) if i else 0
        return self.blob[start : int(self.ends[i])].decode()

    def options(self, line):
        try:
            opts = option_parser().parse_args(shlex.split(line))
        except (Malformed, ValueError):
            return torch.zeros(8)
        return torch.tensor([float(getattr(opts, k)) for k in "rvnaxzp"] + [float(len(opts.words))])

    def __getitem__(self, i):
        line = self.line(i)
        if random.random() < 0.3:
            line = line.replace("/", "//", 1)
        ids = torch.tensor([ord(c) % 96 + 1 for c in line[:LIMIT]])
        return torch.nn.functional.pad(ids, (0, LIMIT - len(ids))), self.options(line), self.intent[i]


class IntentNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(97, width, padding_idx=0)
        self.place = nn.Parameter(torch.randn(LIMIT, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width + 8, len(INTENTS))

    def forward(self, ids, options):
        hidden = self.encode(self.embed(ids) + self.place, src_key_padding_mask=ids == 0)
        return self.head(torch.cat([hidden[:, 0], options], 1))


def generate(path, seed, rows):
    done = subprocess.run([sys.executable, "-c", GENERATOR, str(seed), str(rows), json.dumps(INTENTS)], check=True, capture_output=True, text=True)
    pathlib.Path(path).write_text(done.stdout)
    return path


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="intent-") as folder:
        train_set = Commands(generate(f"{folder}/train.jsonl", 1, 3200))
        test_set = Commands(generate(f"{folder}/test.jsonl", 2, 320))
        weight = (1.0 / torch.bincount(train_set.intent).float())[train_set.intent]
        train = DataLoader(train_set, 32, sampler=WeightedRandomSampler(weight, len(train_set)), num_workers=2, persistent_workers=True)
        test = DataLoader(test_set, 64, num_workers=1, persistent_workers=True)
        model = IntentNet()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for epoch in range(3):
            started = time.time()
            for ids, options, intent in train:
                loss = nn.functional.cross_entropy(model(ids, options), intent)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            with torch.no_grad():
                right = sum((model(ids, options).argmax(1) == intent).sum().item() for ids, options, intent in test)
            print(f"epoch {epoch} loss {loss.item():.3f} accuracy {right / len(test_set):.3f} {time.time() - started:.1f} s", flush=True)
