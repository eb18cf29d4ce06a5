# ruff: noqa
from torch.utils.data import DataLoader, Dataset

if __name__ == "__main__":

    class Images(Dataset):  # finds PS103
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return index

    def collate(batch):  # finds PS103
        return batch

    DataLoader(Images(), num_workers=2, multiprocessing_context="spawn", collate_fn=collate)
