"""Small CPU training scripts whose profiles are in data/profiles.

Each entry of MODELS is a function `run(profile)`: it builds the objects that must
exist before profiling, then enters `with profile() as prof:` and returns prof.
Needs torch.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def linreg_sgd(profile):
    """y = Wx + b fitted with SGD; model and optimizer are made inside the profile."""
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    y = x @ torch.arange(8.0).unsqueeze(1) + 0.5
    with profile() as prof:
        model = nn.Linear(8, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
    return prof


def mlp_adam(profile):
    """Three-layer perceptron, Adam, no warm-up step: optimizer state appears in the profile."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(48, 32), torch.randint(0, 10, (48,))
    with profile() as prof:
        for _ in range(2):
            opt.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
    return prof


def conv_bn_sgdm(profile):
    """Conv net with batch norm and max pooling, SGD with momentum, one warm-up step outside."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 5))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    step(torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,)))
    with profile() as prof:
        for _ in range(2):
            x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
            step(x, y)
    return prof


def transformer_adamw(profile):
    """One-layer transformer encoder with dropout, AdamW, embedding, one step."""
    torch.manual_seed(3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(50, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
            self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.out = nn.Linear(32, 50)

        def forward(self, t):
            return self.out(self.enc(self.emb(t)))

    model = Net()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    tok = torch.randint(0, 50, (4, 12))
    with profile() as prof:
        for _ in range(2):
            opt.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(tok).flatten(0, 1), tok.flatten())
            loss.backward()
            opt.step()
    return prof


def inplace_ops(profile):
    """No module, no torch.optim: hand-written update with in-place operators and views."""
    torch.manual_seed(4)
    w = torch.randn(16, 16, requires_grad=True)
    b = torch.zeros(16, requires_grad=True)
    buf = torch.zeros(16, 16)
    x = torch.randn(32, 16)
    with profile() as prof:
        for _ in range(3):
            h = x.mm(w).add_(b)
            h = h.relu_()
            z = h.clone()
            z.mul_(0.5).add_(h, alpha=0.25)
            z[:, :4].zero_()
            loss = z.pow(2).mean()
            loss.backward()
            with torch.no_grad():
                buf.mul_(0.9).add_(w.grad, alpha=0.1)
                w.add_(buf, alpha=-0.1)
                b.sub_(0.1 * b.grad)
                w.grad.zero_()
                b.grad = None
        y = torch.cat([x, x.new_ones(32, 2)], dim=1)
        torch.sub(y, 1.0, out=y)
        del y
    return prof


def odd_tensors(profile):
    """Sparse, complex, bfloat16, bool, zero-size and scalar tensors, tensor lists, views, out= arguments, storage resize."""
    torch.manual_seed(5)
    w = nn.Parameter(torch.randn(6, 6))
    table = nn.Embedding(20, 6, sparse=True)
    opt = torch.optim.SGD([w, *table.parameters()], lr=0.1)
    with profile() as prof:
        for _ in range(2):
            e = table(torch.tensor([1, 5, 5, 7]))
            parts = torch.split(e @ w, 2)
            h = torch.stack([p.sin() for p in parts]).flatten(0, 1)
            c = torch.fft.fft(h).abs()
            m = (c > 0.1) & torch.ones(6, dtype=torch.bool)
            h16 = h.to(torch.bfloat16).mul(2)
            loss = (c * m).sum() + h16.float().mean() + torch.empty(0, 3).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        s = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (3, 3))
        d = (s + s).to_dense()
        buf = torch.empty(2)
        buf.resize_(100)
        torch.add(d, 1, out=d)
        u = torch.arange(12).as_strided((3, 3), (4, 1)).t().contiguous()
        buf.untyped_storage().resize_(0)
        del s, d, u
    return prof


MODELS = {f.__name__: f for f in (linreg_sgd, mlp_adam, conv_bn_sgdm, transformer_adamw, inplace_ops, odd_tensors)}
