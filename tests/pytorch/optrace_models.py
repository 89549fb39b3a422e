"""Small programs for `optrace.py`, each for one feature of the memory profile. Each is called with `profile`, and returns the
value of `with profile(model) as it:`.
"""
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def perceptron():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def accumulated(profile):
    """Gradients of two batches are added up before each of two steps of Adam over lists of tensors (foreach)."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    batches = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(4)]
    with profile(model) as it:
        for number, (x, y) in enumerate(batches):
            (F.cross_entropy(model(x), y) / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    return it


def batch_norm(profile):
    """Convolutions with batch norm, whose statistics are buffers; SGD with momentum; then an evaluation."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    with profile(model) as it:
        x, y = torch.randn(2, 3, 12, 12), torch.randint(0, 3, (2,))
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        model.eval()
        with torch.no_grad():
            model(x).argmax(1)
    return it


def fused(profile):
    """AdamW in one operator, with gradient clipping, from the second step on."""
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    with profile(model) as it:
        step()
        step()
    return it


def inference(profile):
    """A transformer's layer without gradients, with `no_grad` and with `inference_mode`."""
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    with profile(model) as it:
        with torch.no_grad():
            model(torch.randn(2, 5, 16))
        with torch.inference_mode():
            model(torch.randn(2, 5, 16)).sum()
    return it


def in_place(profile):
    """No module and no optimizer: operators that write their arguments, views, outputs that are passed in."""
    w = torch.randn(8, 8, requires_grad=True)
    b = torch.zeros(8, requires_grad=True)
    x = torch.randn(4, 8)
    out = torch.empty(4, 8)
    with profile() as it:
        for _ in range(2):
            h = x.mm(w).add_(b).relu_().clone()
            h[:, :2].mul_(0.5)
            z = torch.cat([h, h.t().contiguous().t()]).clamp_(min=0.1)
            z.pow(2).sum().backward()
            with torch.no_grad():
                torch.mm(x, w, out=out).sub_(1)
                w -= 0.1 * w.grad
                torch._foreach_add_([w, b], [w.grad, b.grad], alpha=-0.01)
                w.grad = None
                b.grad.zero_()
        del z
    return it


def checkpointed(profile):
    """Activations that are not kept but computed again in the backward pass."""
    first, second = perceptron(), nn.Linear(4, 4)
    model = nn.ModuleList([first, second])
    optimizer = torch.optim.Adagrad(model.parameters())
    x = torch.randn(8, 16)
    with profile(model) as it:
        for _ in range(2):
            second(checkpoint(first, x, use_reentrant=False)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return it


def closure(profile):
    """LBFGS, whose step calls the model itself, several times."""
    model = nn.Linear(6, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x, y = torch.randn(16, 6), torch.randn(16, 1)

    def loss():
        optimizer.zero_grad()
        value = F.mse_loss(model(x), y)
        value.backward()
        return value

    with profile(model) as it:
        optimizer.step(loss)
        optimizer.step(loss)
    return it


def recurrent(profile):
    """An LSTM on an embedding with sparse gradients, and two optimizers."""
    table, rnn, head = nn.Embedding(12, 8, sparse=True), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 2)
    model = nn.ModuleDict({"table": table, "rnn": rnn, "head": head})
    sparse = torch.optim.SparseAdam(table.parameters())
    dense = torch.optim.RMSprop([*rnn.parameters(), *head.parameters()], momentum=0.5)
    tokens = torch.randint(0, 12, (3, 5))
    with profile(model) as it:
        for _ in range(2):
            hidden, _ = rnn(table(tokens))
            F.cross_entropy(head(hidden[:, -1]), torch.tensor([0, 1, 0])).backward()
            for optimizer in (sparse, dense):
                optimizer.step()
                optimizer.zero_grad()
    return it


def mixed(profile):
    """Autocast to bfloat16: weights are cast in each forward pass."""
    model = perceptron()
    optimizer = torch.optim.NAdam(model.parameters())
    x = torch.randn(8, 16)
    with profile(model) as it:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(x).float().logsumexp(1).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return it


def frozen(profile):
    """Only the head is trained; the rest is without gradients, and in half precision."""
    body, head = perceptron().requires_grad_(False), nn.Linear(4, 2)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with profile(model) as it:
        for _ in range(2):
            loss = model(torch.randn(8, 16)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return it


def double_backward(profile):
    """A penalty on the gradient: gradients of gradients."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 6, requires_grad=True)
    with profile(model) as it:
        for _ in range(2):
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            (slope.norm(dim=1) - 1).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return it


def annotated(profile):
    """The user's annotations of parts of a step, and a scheduler of the learning rate."""
    model = perceptron()
    optimizer = torch.optim.RAdam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with profile(model) as it:
        for _ in range(2):
            with torch.profiler.record_function("forward"):
                loss = F.smooth_l1_loss(model(torch.randn(8, 16)), torch.ones(8, 4))
            with torch.profiler.record_function("backward"), torch.profiler.record_function("inner"):
                loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return it


def other_thread(profile):
    """The backward pass runs on a thread that the profiler does not record: PyTorch's analysis fails on this."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 16)
    with profile(model) as it:
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(x).sum()
            thread = threading.Thread(target=loss.backward)
            thread.start()
            thread.join()
            optimizer.step()
    return it


MODELS = (
    accumulated, batch_norm, fused, inference, in_place, checkpointed, closure, recurrent, mixed, frozen, double_backward,
    annotated, other_thread,
)
