# cause: storage-bound
# also: not-fed-fast-enough
"""Bird call classifier; recordings are pulled from an object store on this host."""
import http.client
import http.server
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Store(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        rng = np.random.default_rng(int(self.path.rsplit("/", 1)[1]))
        body = (rng.standard_normal(4000) * 3000).astype("<i2").tobytes()
        time.sleep(0.018)                       # spinning disk
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class StoreProcess:
    def __enter__(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), Store)
        self.port = server.server_address[1]
        self.pid = os.fork()
        if self.pid == 0:
            parent = os.getppid()
            server.timeout = 0.5
            while os.getppid() == parent:
                server.handle_request()
            os._exit(0)
        server.socket.close()
        return self

    def __exit__(self, *exc):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


class Client:
    def __init__(self, port):
        self.port = port

    def get(self, key):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=25)
        try:
            c.request("GET", "/birds/%d" % key)
            return c.getresponse().read()
        finally:
            c.close()


class Calls(Dataset):
    def __init__(self, client, n):
        self.client, self.n = client, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        pcm = np.frombuffer(self.client.get(i), "<i2").astype(np.float32) / 32768
        spec = np.abs(np.fft.rfft(pcm.reshape(20, 200) * np.hanning(200), axis=1)).astype(np.float32)
        return torch.from_numpy(np.log1p(spec)), i % 5


def fit(loader, model, lr, log_every):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    t = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % log_every == 0:
            print("step %d loss %.3f after %.1f s" % (step + 1, loss.item(), time.time() - t), flush=True)


def main():
    torch.set_num_threads(1)
    with StoreProcess() as store:
        loader = DataLoader(Calls(Client(store.port), 256), 8, shuffle=True, num_workers=6)
        fit(loader, nn.Sequential(nn.Flatten(), nn.Linear(20 * 101, 64), nn.ReLU(), nn.Linear(64, 5)), 1e-2, 8)


if __name__ == "__main__":
    main()
