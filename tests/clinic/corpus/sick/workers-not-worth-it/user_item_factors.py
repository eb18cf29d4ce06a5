# cause: workers-not-worth-it
"""Neural matrix factorisation of implicit ratings: users x items with side features."""
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

USERS, ITEMS, GENRES = 3000, 1200, 12
RATINGS = 24_000
BATCH = 24
EPOCHS = 4

torch.manual_seed(11)
torch.set_num_threads(1)


def simulate_ratings():
    taste, style = torch.randn(USERS, 4), torch.randn(ITEMS, 4)
    users, items = torch.randint(USERS, (RATINGS,)), torch.randint(ITEMS, (RATINGS,))
    genre = torch.rand(ITEMS, GENRES)
    noise = 0.3 * torch.randn(RATINGS)
    stars = (taste[users] * style[items]).sum(1) / 2 + genre[items, 0] + noise
    return users, items, genre[items], stars


class Standardised(Dataset):
    """Centres the ratings of another dataset with the statistics of the training part."""

    def __init__(self, inner, mean, std):
        self.inner, self.mean, self.std = inner, mean, std

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        user, item, genre, stars = self.inner[index]
        return {"user": user, "item": item, "genre": genre, "stars": (stars - self.mean) / self.std}


class NeuMF(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.user = nn.Embedding(USERS, width)
        self.item = nn.Embedding(ITEMS, width)
        self.bias = nn.Embedding(ITEMS, 1)
        self.mlp = nn.Sequential(nn.Linear(2 * width + GENRES, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch):
        u, i = self.user(batch["user"]), self.item(batch["item"])
        deep = self.mlp(torch.cat([u, i, batch["genre"]], 1))
        return (deep + self.bias(batch["item"])).squeeze(1) + (u * i).sum(1)


def build():
    ratings = TensorDataset(*simulate_ratings())
    train, val = random_split(ratings, [0.9, 0.1])
    stars = ratings.tensors[3][torch.tensor(train.indices)]
    mean, std = stars.mean(), stars.std()
    options = dict(batch_size=BATCH, num_workers=2, persistent_workers=True, prefetch_factor=4)
    return (
        DataLoader(Standardised(train, mean, std), shuffle=True, drop_last=True, **options),
        DataLoader(Standardised(val, mean, std), **options),
    )


train_loader, val_loader = build()
model = NeuMF()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * len(train_loader))
criterion = nn.MSELoss()
best = math.inf

for epoch in range(EPOCHS):
    clock = time.perf_counter()
    running, rows = torch.zeros(()), 0
    model.train()
    for batch in train_loader:
        loss = criterion(model(batch), batch["stars"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.detach()
        rows += len(batch["stars"])

    model.eval()
    squared, count = 0.0, 0
    with torch.no_grad():
        for batch in val_loader:
            squared += nn.functional.mse_loss(model(batch), batch["stars"], reduction="sum").item()
            count += len(batch["stars"])
            rows += len(batch["stars"])
    rmse = math.sqrt(squared / count)
    if rmse < best:
        best = rmse
        state = {name: value.clone() for name, value in model.state_dict().items()}
    spent = time.perf_counter() - clock
    print(f"epoch {epoch}  train {running.item() / len(train_loader):.4f}  val rmse {rmse:.4f}  {rows / spent:.0f} ratings/s", flush=True)

print(f"best rmse {best:.4f}, {sum(v.numel() for v in state.values())} parameters kept")
