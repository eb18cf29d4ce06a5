# cause: client-not-fork-safe
"""Land use of parcels from multispectral chips that a feature service hands out."""
import argparse
import http.client
import http.server
import json
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

PARCELS, BANDS, SIDE = 900, 6, 36
CLASSES = ("arable", "grass", "forest", "built")


class FeatureService(http.server.BaseHTTPRequestHandler):
    """Small stand-in for the office's service."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, *args):
        pass

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/parcels":
            rows = [{"id": k, "use": k * 7 % 11 % len(CLASSES)} for k in range(PARCELS)]
            return self.answer(json.dumps(rows).encode(), "application/json")
        number = int(self.path.rsplit("/", 1)[1])
        rng = np.random.default_rng(number)
        chip = rng.normal(100 + 12 * (number * 7 % 11 % len(CLASSES)), 20, (BANDS, SIDE, SIDE))
        return self.answer(chip.astype("<f4").tobytes(), "application/octet-stream")


def start_service():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FeatureService)
    process = multiprocessing.Process(target=server.serve_forever, daemon=True, name="feature-service")
    process.start()
    address = server.server_address
    server.socket.close()
    return address


class ParcelClient:
    """Keeps one connection alive: a handshake per chip would cost more than the chip."""

    def __init__(self, host, port):
        self.connection = http.client.HTTPConnection(host, port)

    def _get(self, path):
        self.connection.request("GET", path, headers={"Accept": "*/*"})
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {response.reason}")
        return body

    def parcels(self):
        return json.loads(self._get("/parcels"))

    def chip(self, number):
        return np.frombuffer(self._get(f"/chip/{number}"), dtype="<f4").reshape(BANDS, SIDE, SIDE)


class ParcelDataset(Dataset):
    def __init__(self, client, augment=False):
        self.client, self.augment = client, augment
        rows = client.parcels()
        self.ids = np.array([row["id"] for row in rows])
        self.uses = np.array([row["use"] for row in rows])

    def __len__(self):
        return len(self.ids)

    def indices(self, chip):
        red, near_infrared = chip[2], chip[3]
        ndvi = (near_infrared - red) / (near_infrared + red + 1e-3)
        texture = np.abs(np.fft.fft2(chip[0]))
        return np.stack([ndvi, np.log1p(texture)])

    def __getitem__(self, index):
        chip = self.client.chip(self.ids[index])
        image = torch.from_numpy(np.concatenate([chip / 100.0, self.indices(chip)]).astype(np.float32))
        if self.augment and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, int(self.uses[index])


def balanced(dataset, indices):
    uses = dataset.uses[indices]
    weight = 1.0 / np.bincount(uses, minlength=len(CLASSES))[uses]
    return WeightedRandomSampler(torch.from_numpy(weight), len(indices))


def loaders(args):
    client = ParcelClient(*start_service())
    training, validation = ParcelDataset(client, augment=True), ParcelDataset(client)
    order = np.random.default_rng(0).permutation(len(training))
    held_out, kept = order[:120], order[120:]
    options = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0)
    return (DataLoader(Subset(training, kept), sampler=balanced(training, kept), **options),
            DataLoader(Subset(validation, held_out), **options))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_loader, val_loader = loaders(args)
    model = nn.Sequential(nn.Conv2d(BANDS + 2, 12, 5, stride=3), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
                          nn.Flatten(), nn.Linear(192, len(CLASSES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        begin = time.time()
        model.train()
        for image, use in train_loader:
            loss = nn.functional.cross_entropy(model(image), use)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            hits = torch.cat([model(image).argmax(1) == use for image, use in val_loader])
        print(f"epoch {epoch} loss {loss.item():.3f} accuracy {hits.float().mean():.3f} in {time.time() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
