# cause: lock-serialises-workers
# also: storage-bound
"""Duration model for a small TTS system. Text is phonemised by the lab's phonemiser daemon."""
import hashlib
import multiprocessing as mp
import os
import random
import socket
import socketserver
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PHONES = 48


class PhonemiserHandler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            time.sleep(0.006)  # lexicon look-up plus letter-to-sound rules
            phones = []
            for word in line.decode().split():
                h = hashlib.md5(word.encode()).digest()
                phones.extend(str(b % (PHONES - 1) + 1) for b in h[: max(2, len(word))])
            self.wfile.write((" ".join(phones) + "\n").encode())


class PhonemiserServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def start_phonemiser():
    server = PhonemiserServer(("127.0.0.1", 0), PhonemiserHandler)
    mp.Process(target=server.serve_forever, daemon=True).start()
    server.socket.close()
    return server.server_address


class PhonemiserClient:
    """One connection per process. Requests are guarded, the protocol has no request ids."""

    def __init__(self, address):
        self.address = address
        self.guard = mp.Lock()
        self.pid, self.stream = None, None

    def connect(self):
        if self.pid != os.getpid():
            sock = socket.create_connection(self.address, timeout=15)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pid, self.stream = os.getpid(), sock.makefile("rwb")
        return self.stream

    def __call__(self, text):
        with self.guard:
            stream = self.connect()
            stream.write(text.encode() + b"\n")
            stream.flush()
            return [int(p) for p in stream.readline().split()]


class Utterances(Dataset):
    def __init__(self, texts, phonemise):
        self.texts, self.phonemise = texts, phonemise

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        ids = torch.tensor(self.phonemise(self.texts[i]))
        durations = 3.0 + (ids % 7).float() + 0.5 * (ids % 3).float()
        return ids, durations


def collate(batch):
    ids, durations = zip(*batch)
    return pad_sequence(ids, batch_first=True), pad_sequence(durations, batch_first=True)


class DurationPredictor(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(PHONES, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, 1)

    def forward(self, ids):
        h = torch.relu(self.conv(self.embed(ids).transpose(1, 2)))
        return self.out(h.transpose(1, 2)).squeeze(-1)


def make_texts(n):
    rng = random.Random(0)
    vocab = ["".join(rng.choices("aeioustrnlmpk", k=rng.randint(2, 8))) for _ in range(500)]
    return [" ".join(rng.choices(vocab, k=rng.randint(4, 12))) for _ in range(n)]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    address = start_phonemiser()
    dataset = Utterances(make_texts(640), PhonemiserClient(address))
    loader = DataLoader(dataset, batch_size=16, shuffle=True, collate_fn=collate,
                        num_workers=6, persistent_workers=True)
    model = DurationPredictor()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        t0, total, frames = time.time(), 0.0, 0
        for ids, target in loader:
            mask = ids.ne(0)
            loss = ((model(ids) - target).abs() * mask).sum() / mask.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * int(mask.sum())
            frames += int(mask.sum())
        print(f"epoch {epoch + 1}: mean abs error {total / frames:.3f} frames, {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
