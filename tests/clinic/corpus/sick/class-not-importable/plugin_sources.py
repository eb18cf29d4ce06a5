# cause: class-not-importable
"""Trainer whose data sources are plugin files named in a YAML experiment description."""
import importlib.util
import logging
import sys
import tempfile
import textwrap
from pathlib import Path

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader

EXPERIMENT = """
name: bearing-faults
source: {plugin: rig_vibration.py, class: RigVibration, args: {runs: 2400, seed: 6}}
loader: {batch_size: 40, num_workers: 2, shuffle: true, persistent_workers: true, multiprocessing_context: forkserver}
model: {hidden: 48, classes: 3}
epochs: 3
lr: 0.002
"""

RIG_PLUGIN = '''
import numpy as np
import torch
from torch.utils.data import Dataset

class RigVibration(Dataset):
    """Accelerometer bursts of a bearing test rig: healthy, inner race, outer race."""
    def __init__(self, runs, seed):
        self.runs, self.seed = runs, seed

    def __len__(self):
        return self.runs

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        kind = int(rng.integers(3))
        t = np.arange(8192) / 12000
        x = rng.normal(0, 1, t.size)
        if kind:
            rate = (162.2, 107.4)[kind - 1] * rng.uniform(0.98, 1.02)
            phase = (t * rate) % 1.0
            x += 3 * np.exp(-phase * 20) * np.sin(2 * np.pi * 3000 * t)
        env = np.abs(np.fft.ifft(np.where(np.arange(t.size) < t.size // 2, 2, 0) * np.fft.fft(x)))
        spec = np.abs(np.fft.rfft(env - env.mean()))[:400]
        return torch.from_numpy(np.log1p(spec).astype(np.float32)), kind
'''


class PluginRegistry:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.log = logging.getLogger("plugins")

    def module(self, filename):
        name = f"lab_plugins_{Path(filename).stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, self.folder / filename)
            mod = importlib.util.module_from_spec(spec)
            sys.modules[name] = mod
            spec.loader.exec_module(mod)
            self.log.info("loaded %s from %s", name, self.folder)
        return sys.modules[name]

    def create(self, plugin, args, **kw):
        return getattr(self.module(plugin), kw["class"])(**args)


class Experiment:
    def __init__(self, cfg, registry):
        self.cfg = cfg
        self.source = registry.create(**cfg["source"])
        self.loader = DataLoader(self.source, **cfg["loader"])
        m = cfg["model"]
        self.net = nn.Sequential(nn.Linear(400, m["hidden"]), nn.ReLU(), nn.Linear(m["hidden"], m["classes"]))
        self.opt = torch.optim.Adam(self.net.parameters(), cfg["lr"])

    def run(self):
        for epoch in range(self.cfg["epochs"]):
            right = 0
            for x, y in self.loader:
                out = self.net(x)
                self.opt.zero_grad()
                nn.functional.cross_entropy(out, y).backward()
                self.opt.step()
                right += int((out.argmax(1) == y).sum())
            logging.info("%s epoch %d accuracy %.3f", self.cfg["name"], epoch, right / len(self.source))


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="plugins_") as folder:
        Path(folder, "rig_vibration.py").write_text(textwrap.dedent(RIG_PLUGIN))
        Experiment(yaml.safe_load(EXPERIMENT), PluginRegistry(folder)).run()


if __name__ == "__main__":
    main()
