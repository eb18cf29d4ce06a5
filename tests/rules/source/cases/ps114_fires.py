# ruff: noqa
import boto3
import s3fs
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, keys):
        self.keys = keys
        self.client = boto3.client("s3")  # finds PS114
        self.files = s3fs.S3FileSystem(anon=True)  # finds PS114

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        self.files.open(self.keys[index])
        return self.client.get_object(Bucket="b", Key=self.keys[index])["Body"].read()


loader = DataLoader(Remote(["a"]), num_workers=4)
