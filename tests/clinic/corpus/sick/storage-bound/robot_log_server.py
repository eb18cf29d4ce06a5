# cause: storage-bound
"""Behaviour cloning from joint logs kept on the lab's log server (HTTP, 100 Mbit uplink)."""
import http.server
import multiprocessing as mp
import os
import tempfile
import threading
import time
import urllib.request

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPISODE_SHAPE = (256, 40)  # time steps x (joints, velocities, torques, commands)


class LogHandler(http.server.SimpleHTTPRequestHandler):
    uplink = threading.Lock()
    bytes_per_second = 100e6 / 8

    def do_GET(self):
        with open(os.path.join(self.server.root, os.path.basename(self.path)), "rb") as f:
            body = f.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2
        for part in (body[:half], body[half:]):
            with self.uplink:
                time.sleep(len(part) / self.bytes_per_second + 0.001)
            self.wfile.write(part)

    def log_message(self, *args):
        pass


class LogServer:
    def __init__(self, root):
        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LogHandler)
        self.httpd.root = root
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"

    def start(self):
        proc = mp.Process(target=self.httpd.serve_forever, daemon=True)
        proc.start()
        self.httpd.socket.close()
        return proc


class EpisodeLogs(Dataset):
    def __init__(self, url, names, window=32):
        self.url, self.names, self.window = url, list(names), window

    def __len__(self):
        return len(self.names)

    def _download(self, name):
        with urllib.request.urlopen(f"{self.url}/{name}", timeout=20) as r:
            return r.read()

    def __getitem__(self, i):
        log = np.frombuffer(self._download(self.names[i]), dtype=np.float32).reshape(EPISODE_SHAPE)
        start = int(torch.randint(0, EPISODE_SHAPE[0] - self.window, ()))
        clip = torch.tensor(log[start:start + self.window])
        return clip[:, :30], clip[-1, 30:]


def record_episodes(root, n):
    rng = np.random.default_rng(5)
    names = []
    for i in range(n):
        walk = rng.standard_normal(EPISODE_SHAPE).astype(np.float32).cumsum(0) * 0.05
        name = f"episode_{i:04d}.f32"
        walk.tofile(os.path.join(root, name))
        names.append(name)
    return names


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(30, 32, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, obs):
        _, h = self.gru(obs)
        return self.head(h[-1])


def main(epochs=4, batch_size=16):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="robot_logs_") as root:
        names = record_episodes(root, 640)
        server = LogServer(root)
        proc = server.start()
        loader = DataLoader(EpisodeLogs(server.url, names), batch_size=batch_size, shuffle=True,
                            num_workers=4, persistent_workers=True)
        policy = Policy()
        opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
        try:
            for epoch in range(epochs):
                t0, losses = time.time(), []
                for obs, command in loader:
                    loss = nn.functional.smooth_l1_loss(policy(obs), command)
                    opt.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                    opt.step()
                    losses.append(loss.item())
                print(f"epoch {epoch} loss {np.mean(losses):.4f} {len(names) / (time.time() - t0):.0f} episodes/s", flush=True)
            torch.save(policy.state_dict(), os.path.join(root, "policy.pt"))
        finally:
            proc.terminate()


if __name__ == "__main__":
    main()
