# cause: copy-on-write-growth
# also: worker-out-of-memory
# limits: memory=800M
"""Next-track recommendation from listening events: hashed metadata of the track and context, two towers."""
import logging
import random
import time
import zlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
HASH = 1 << 15
MOODS = ["calm", "happy", "dark", "driving", "dreamy", "raw"]
SYLLABLES = ["la", "mi", "ro", "ven", "tas", "du", "kel", "nor", "shi", "ba", "quo", "zen"]


@dataclass
class Options:
    events: int = 280_000
    batch: int = 512
    workers: int = 2
    epochs: int = 3
    width: int = 32
    lr: float = 0.01


def name(rng, parts):
    return "".join(rng.choices(SYLLABLES, k=parts))


def listening_events(count, seed):
    """What the event service hands out: one JSON-like record each."""
    rng = random.Random(seed)
    events = []
    for number in range(count):
        events.append({
            "listener": f"listener-{rng.randrange(20_000):06d}",
            "track": f"{name(rng, 2)} {name(rng, 3)} {number}",
            "artist": f"{name(rng, 3)} & the {name(rng, 2)}s",
            "mood": rng.choice(MOODS),
            "when": 1_700_000_000 + rng.randrange(10_000_000),
            "played": rng.random(),
            "skips": rng.randrange(1000, 9000),
        })
    return events


def hashed(*parts):
    return zlib.crc32("/".join(parts).encode()) % HASH


class EventDataset(Dataset):
    def __init__(self, events):
        self.events = events

    def __len__(self):
        return len(self.events)

    def __getitem__(self, number):
        event = self.events[number]
        hour, day = event["when"] // 3600 % 24, event["when"] // 86400 % 7
        listener = [hashed("l", event["listener"]), hashed("h", str(hour)), hashed("d", str(day)), hashed("hd", str(hour), str(day))]
        words = event["track"].split() + event["artist"].split()
        track = [hashed("w", w) for w in words[:5]] + [hashed("t", w[i:i + 3]) for w in words[:2] for i in range(3)]
        track += [hashed("m", event["mood"]), hashed("a", event["artist"])]
        track += [0] * (13 - len(track))
        return listener, track, event["played"]


def collate(rows):
    listeners, tracks, played = zip(*rows)
    return torch.tensor(listeners), torch.tensor(tracks), torch.tensor(played)


class Towers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.listener = nn.EmbeddingBag(HASH, width, mode="mean")
        self.track = nn.EmbeddingBag(HASH, width, mode="mean")
        self.mix = nn.Linear(width, width)

    def forward(self, listener, track):
        return (self.mix(self.listener(listener)) * self.track(track)).sum(1)


def train(options):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    began = time.perf_counter()
    dataset = EventDataset(listening_events(options.events, seed=17))
    logging.info("%d events in %.1f s", len(dataset), time.perf_counter() - began)
    loader = DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=options.workers, collate_fn=collate)
    model = Towers(options.width)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=options.lr)
    for epoch in range(options.epochs):
        began = time.perf_counter()
        for step, (listener, track, played) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(listener, track), played.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                logging.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        logging.info("epoch %d: %.0f events/s", epoch, len(dataset) / (time.perf_counter() - began))


if __name__ == "__main__":
    train(Options())
