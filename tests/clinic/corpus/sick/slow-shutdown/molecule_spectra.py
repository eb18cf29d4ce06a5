# cause: slow-shutdown
"""Predicting HOMO-LUMO gaps of chain molecules; Hueckel features come from exact diagonalisation."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Chains(Dataset):
    """Sorted by size, so that the early part of every epoch is the easy curriculum."""

    def __init__(self, n=400, seed=0):
        g = torch.Generator().manual_seed(seed)
        small = torch.randint(12, 60, (n // 2,), generator=g)
        large = torch.randint(900, 1300, (n - n // 2,), generator=g)
        self.atoms = torch.cat([small, large]).sort().values.tolist()

    def __len__(self):
        return len(self.atoms)

    def hamiltonian(self, i):
        n = self.atoms[i]
        g = torch.Generator().manual_seed(i)
        h = torch.diag(torch.randn(n, generator=g) * 0.2)
        hop = -1 + 0.1 * torch.randn(n - 1, generator=g)
        h += torch.diag(hop, 1) + torch.diag(hop, -1)
        return h.double()

    def __getitem__(self, i):
        e = torch.linalg.eigvalsh(self.hamiltonian(i))
        for _ in range(2):     # two self-consistency rounds with level repulsion
            h = self.hamiltonian(i)
            h += torch.diag(0.01 * e)
            e = torch.linalg.eigvalsh(h)
        dos = torch.histc(e.float(), 64, -3, 3) / len(e)
        mid = len(e) // 2
        return dos, (e[mid] - e[mid - 1]).float(), len(e)


class AtomBudget:
    """Stops an epoch once so many atoms have been seen."""

    def __init__(self, budget):
        self.budget, self.seen = budget, 0

    def spent(self, sizes):
        self.seen += int(sizes.sum())
        return self.seen >= self.budget

    def reset(self):
        self.seen = 0


def main():
    torch.manual_seed(0)
    loader = DataLoader(Chains(), batch_size=25, num_workers=2)
    model = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    budget = AtomBudget(6500)
    for epoch in range(2):
        t0, batches = time.perf_counter(), 0
        budget.reset()
        for dos, gap, size in loader:
            loss = (model(dos).squeeze(1) - gap).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            batches += 1
            if budget.spent(size):
                t1 = time.perf_counter()
                break
        print(f"epoch {epoch}: {batches} batches, mae {loss.item():.4f}, steps {t1 - t0:.1f}s, whole epoch {time.perf_counter() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
