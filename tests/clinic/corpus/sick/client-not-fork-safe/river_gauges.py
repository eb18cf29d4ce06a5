# cause: client-not-fork-safe
"""Forecast river levels from series that a gauge service hands out."""

import argparse
import socket
import socketserver
import struct
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 48
RECORD = struct.Struct("<I")


class Station(socketserver.BaseRequestHandler):
    """Answers each gauge number with its series."""

    def handle(self):
        while True:
            asked = self.request.recv(RECORD.size, socket.MSG_WAITALL)
            if len(asked) < RECORD.size:
                return
            (gauge,) = RECORD.unpack(asked)
            hours = np.arange(STEPS + 1, dtype="<f4") + gauge
            series = np.sin(hours * 0.507) + 0.3 * np.cos(hours * 0.253 * (1 + gauge % 3))
            self.request.sendall(series.astype("<f4").tobytes())


def start_station():
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Station)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class StationClient:
    def __init__(self, address):
        self.sock = socket.create_connection(address, timeout=10)

    def series(self, gauge):
        self.sock.sendall(RECORD.pack(gauge))
        raw = self.sock.recv((STEPS + 1) * 4, socket.MSG_WAITALL)
        return torch.from_numpy(np.frombuffer(raw, dtype="<f4").copy())


class Gauges(Dataset):
    def __init__(self, address, count):
        self.count = count
        self.client = StationClient(address)

    def __len__(self):
        return self.count

    def __getitem__(self, gauge):
        series = self.client.series(gauge)
        level = series[:STEPS]
        return (level - level.mean()) / (level.std() + 1e-6), series[STEPS:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gauges", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    server = start_station()
    loader = DataLoader(
        Gauges(server.server_address, options.gauges), batch_size=50, shuffle=True, num_workers=3
    )
    model = nn.Sequential(nn.Linear(STEPS, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        total = 0.0
        for level, following in loader:
            loss = nn.functional.mse_loss(model(level), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
    server.shutdown()


if __name__ == "__main__":
    main()
