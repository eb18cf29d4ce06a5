# cause: result-not-picklable
"""Text with lazily tokenised fields."""

import torch
from torch.utils.data import DataLoader, Dataset

TEXT = ["the penstock feeds the turbine"] * 80


class Sentences(Dataset):
    def __len__(self):
        return len(TEXT)

    def __getitem__(self, i):
        return {"length": len(TEXT[i]), "tokens": (word.upper() for word in TEXT[i].split())}


def collate(samples):
    return {"length": torch.tensor([s["length"] for s in samples]), "tokens": [s["tokens"] for s in samples]}


def main():
    loader = DataLoader(Sentences(), batch_size=10, num_workers=2, collate_fn=collate)
    for batch in loader:
        print(batch["length"].sum().item(), sum(len(list(tokens)) for tokens in batch["tokens"]))


if __name__ == "__main__":
    main()
