# cause: many-small-tensors
"""Counting and locating vehicles on parking lots."""
import argparse
import math
import time
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Vehicle(NamedTuple):
    centre: torch.Tensor
    size: torch.Tensor
    heading: torch.Tensor
    kind: torch.Tensor


class Lot(NamedTuple):
    image: torch.Tensor
    vehicles: list


class LotRenderer:
    def __init__(self, side):
        self.side = side
        axis = torch.arange(side, dtype=torch.float32)
        self.yy, self.xx = torch.meshgrid(axis, axis, indexing="ij")

    def draw(self, canvas, vehicle):
        dx, dy = self.xx - vehicle.centre[0], self.yy - vehicle.centre[1]
        c, s = math.cos(vehicle.heading), math.sin(vehicle.heading)
        inside = ((c * dx + s * dy).abs() < vehicle.size[0]) & ((c * dy - s * dx).abs() < vehicle.size[1])
        canvas[inside] = 0.3 + 0.2 * vehicle.kind.item()


class ParkingLots(Dataset):
    def __init__(self, lots, side, most):
        self.lots, self.most = lots, most
        self.renderer = LotRenderer(side)

    def __len__(self):
        return self.lots

    def random_vehicle(self):
        r = torch.rand(5)
        side = self.renderer.side
        return Vehicle(r[:2].clone() * side, 1.0 + 3 * r[2:4].clone(), (r[4] * math.pi).clone(), torch.randint(0, 4, ()))

    def __getitem__(self, i):
        vehicles = [self.random_vehicle() for _ in range(4 + i % (self.most - 4))]
        canvas = torch.rand(self.renderer.side, self.renderer.side) * 0.1
        for v in vehicles:
            self.renderer.draw(canvas, v)
        return Lot(canvas[None], vehicles)


def gather(lots):
    return torch.stack([lot.image for lot in lots]), [lot.vehicles for lot in lots]


class HeatLoss(nn.Module):
    def __init__(self, cells, side):
        super().__init__()
        self.cells, self.scale = cells, cells / side

    def forward(self, heat, targets):
        goal = torch.zeros_like(heat)
        for k, vehicles in enumerate(targets):
            at = (torch.stack([v.centre for v in vehicles]) * self.scale).long().clamp(max=self.cells - 1)
            goal[k, 0, at[:, 1], at[:, 0]] = 1.0
        return nn.functional.binary_cross_entropy_with_logits(heat, goal)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lots", type=int, default=240)
    p.add_argument("--side", type=int, default=48)
    p.add_argument("--most", type=int, default=24)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader = DataLoader(ParkingLots(args.lots, args.side, args.most), args.batch, shuffle=True, collate_fn=gather,
                        num_workers=args.workers)
    net = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4), nn.Conv2d(12, 1, 3, padding=1))
    criterion = HeatLoss(args.side // 4, args.side)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    began = time.time()
    for step, (images, targets) in enumerate(loader):
        loss = criterion(net(images), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    print(f"epoch done in {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
