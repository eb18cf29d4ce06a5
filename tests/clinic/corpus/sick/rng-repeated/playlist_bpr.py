# cause: rng-repeated
"""BPR matrix factorisation on playlists with sampled negatives."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_LISTS, N_TRACKS, PER_LIST, DIM = 1200, 5000, 30, 24


def synth_playlists(gen):
    taste = torch.randn(N_LISTS, 8, generator=gen)
    tracks = torch.randn(N_TRACKS, 8, generator=gen)
    lists = []
    for t in taste.split(100):
        score = t @ tracks.T + torch.randn(len(t), N_TRACKS, generator=gen)
        lists.append(score.topk(PER_LIST, dim=1).indices)
    return torch.cat(lists), tracks


class PlaylistPairs(Dataset):
    """One item is one playlist: positives, plus negatives drawn hard from a candidate pool."""

    def __init__(self, lists, audio, pool=1500, seed=99):
        self.lists, self.audio, self.pool = lists, audio, pool
        self.gen = torch.Generator()
        self.gen.manual_seed(seed)

    def __len__(self):
        return len(self.lists)

    def draw_candidates(self):
        return torch.randint(0, N_TRACKS, (self.pool,), generator=self.gen)

    def __getitem__(self, i):
        pos = self.lists[i]
        cand = self.draw_candidates()
        cand = cand[~torch.isin(cand, pos)]
        d = torch.cdist(self.audio[cand], self.audio[pos])        # content distance
        keep = d.min(1).values.topk(8 * PER_LIST, largest=False).indices
        pick = torch.randperm(len(keep), generator=self.gen)[:PER_LIST]
        return i, pos, cand[keep[pick]]


class BPR(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Embedding(N_LISTS, DIM)
        self.v = nn.Embedding(N_TRACKS, DIM)

    def forward(self, u, p, n):
        u = self.u(u)[:, None]
        return ((u * self.v(p)).sum(-1) - (u * self.v(n)).sum(-1))


class Trainer:
    def __init__(self, workers=2, epochs=5):
        torch.manual_seed(0)
        lists, audio = synth_playlists(torch.Generator().manual_seed(1))
        self.loader = DataLoader(PlaylistPairs(lists, audio), batch_size=40, shuffle=True, num_workers=workers,
                                 persistent_workers=True, prefetch_factor=3)
        self.model, self.epochs = BPR(), epochs
        self.opt = torch.optim.Adagrad(self.model.parameters(), lr=0.1)

    def step(self, batch):
        margin = self.model(*batch)
        loss = -nn.functional.logsigmoid(margin).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach(), (margin > 0).float().mean()

    def fit(self):
        for e in range(self.epochs):
            stats = torch.stack([torch.stack(self.step(b)) for b in self.loader]).mean(0)
            print("epoch", e, "bpr loss %.4f  auc %.4f" % tuple(stats.tolist()), flush=True)


if __name__ == "__main__":
    Trainer().fit()
