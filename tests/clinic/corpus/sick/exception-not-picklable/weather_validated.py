# cause: exception-not-picklable
# also: dataset-raises
"""Next-hour temperature from station messages, with a schema check on every message."""
import json

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCHEMA = yaml.safe_load("""
name: station-report
length: 48
fields:
  temperature: [-60, 60]
  pressure: [850, 1090]
  humidity: [0, 100]
  wind: [0, 90]
""")


def build_validator(schema):
    """Turns a schema into a checking function with an error type of its own."""

    class ReportError(ValueError):
        """A message does not follow the schema."""

        schema_name = schema["name"]

    def check(message):
        out = []
        for field, (lo, hi) in schema["fields"].items():
            series = np.asarray(message[field], dtype=np.float32)
            if series.shape != (schema["length"],):
                raise ReportError(f"{schema['name']}.{field}: {series.shape[0]} values")
            if series.min() < lo or series.max() > hi:
                raise ReportError(f"{schema['name']}.{field}: outside [{lo}, {hi}]")
            out.append((series - lo) / (hi - lo))
        return np.stack(out)

    check.error = ReportError
    return check


def station_messages(n, seed=12):
    rng = np.random.default_rng(seed)
    hours = np.arange(49)
    for i in range(n):
        daily = 8 * np.sin(2 * np.pi * (hours + rng.integers(24)) / 24)
        temp = rng.uniform(-10, 25) + daily + rng.normal(0, 0.4, 49)
        if i % 611 == 610:
            temp[int(rng.integers(48))] = 999.9
        yield json.dumps({
            "temperature": temp[:48].round(2).tolist(),
            "pressure": (1013 + rng.normal(0, 8, 48)).round(1).tolist(),
            "humidity": rng.uniform(20, 95, 48).round(1).tolist(),
            "wind": rng.gamma(2, 3, 48).clip(0, 80).round(1).tolist(),
            "next": round(float(temp[48]), 2),
        })


class StationReports(Dataset):
    def __init__(self, messages, check, noise=0.0):
        self.messages, self.check, self.noise = messages, check, noise

    def __len__(self):
        return len(self.messages)

    def __getitem__(self, i):
        message = json.loads(self.messages[i])
        x = torch.from_numpy(self.check(message))
        if self.noise:
            x = x + self.noise * torch.randn_like(x)
        return x, torch.tensor(message["next"] / 30.0)


class Forecaster(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.conv = nn.Conv1d(channels, 16, 6, stride=2)
        self.out = nn.Linear(16 * 22, 1)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).flatten(1)).squeeze(1)


def epoch_loss(net, loader, opt=None):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(net(x), y)
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += loss.item() * len(y)
    return total / len(loader.dataset)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(9)
    check = build_validator(SCHEMA)
    messages = list(station_messages(3000))
    train = DataLoader(StationReports(messages[400:], check, noise=0.01), batch_size=50, shuffle=True, num_workers=2)
    val = DataLoader(StationReports(messages[:400], check), batch_size=50, num_workers=2)
    net = Forecaster()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(3):
        try:
            a = epoch_loss(net, train, opt)
        except check.error as err:
            print("rejected message, stopping:", err)
            raise SystemExit(1)
        with torch.no_grad():
            b = epoch_loss(net, val)
        print(f"epoch {epoch}: train {a:.5f} val {b:.5f}", flush=True)


if __name__ == "__main__":
    main()
