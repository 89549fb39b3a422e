"""Random programs for `optrace.py`: tensors are created, written, viewed, resized and dropped; modules and optimizers are created
and dropped; gradients are accumulated, replaced and differentiated. A program depends only on its seed.
"""
import random
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

N = 6  # Most tensors are N × N, so that most operations succeed.


def moved(tensor):
    """Frees the memory of a tensor and allocates it again. Without memory, the next operator would crash."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)


MADE = (
    lambda: torch.randn(N, N), lambda: torch.ones(N, N), lambda: torch.empty(N, N), lambda: torch.zeros(N, 1),
    lambda: torch.tensor(1.5), lambda: torch.arange(N * N).view(N, N), lambda: torch.empty(0),
    lambda: torch.randn(N, N, dtype=torch.float64), lambda: torch.randn(N, N).to(torch.bfloat16),
    lambda: torch.randn(N, N, dtype=torch.complex64), lambda: torch.eye(N).to_sparse(), lambda: torch.rand(N, N) > 0.5,
    lambda: torch.empty(N, N).fill_(0.5), lambda: torch.randn(N, N, requires_grad=True),
)
UNARY = (
    torch.sin, torch.relu, torch.exp, torch.abs, torch.t, torch.clone, torch.detach, F.gelu, torch.sum, torch.mean,
    lambda t: t.to(torch.float16), lambda t: t.softmax(-1), lambda t: t.contiguous(), lambda t: t[1:3], lambda t: t[:, ::2],
    lambda t: t.expand(N, N), lambda t: t.reshape(-1), lambda t: t.as_strided((2, 2), (1, 2)), lambda t: F.dropout(t, 0.5),
    lambda t: t.cumsum(0), lambda t: t.norm(), lambda t: t.sort()[0], lambda t: t.float(), lambda t: t[t > 0],
    lambda t: torch.as_tensor(t.detach().numpy()), lambda t: t.max(0).values, lambda t: t.log_softmax(0).unbind()[0],
)
BINARY = (
    torch.add, torch.mul, torch.mm, torch.matmul, torch.sub, torch.maximum, F.mse_loss, torch.where,
    lambda a, b: torch.cat([a, b]), lambda a, b: torch.stack([a, b, a]), lambda a, b: torch.addmm(a, a, b),
    lambda a, b: torch._foreach_mul([a, b], 2)[0], lambda a, b: torch.einsum("ij,jk->ik", a, b),
    lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: torch.add(a, b, alpha=0.5), lambda a, b: torch.outer(a[0], b[0]),
)
IN_PLACE = (
    lambda a, b: a.add_(b), lambda a, b: a.mul_(0.5), lambda a, b: a.copy_(b), lambda a, b: a.zero_(), lambda a, b: a.relu_(),
    lambda a, b: a[0].add_(b[0]), lambda a, b: a.t().sub_(b), lambda a, b: torch._foreach_add_([a, b], 1.0),
    lambda a, b: torch.add(a, b, out=a), lambda a, b: torch.mm(a.clone(), b, out=a), lambda a, b: a.index_fill_(0, torch.tensor([1]), 2),
    lambda a, b: torch.sin(b, out=torch.empty(0)), lambda a, b: a.resize_(N, N + 1), lambda a, b: a.set_(b),
    lambda a, b: moved(a), lambda a, b: a.masked_fill_(b > 0, 1), lambda a, b: a.__setitem__(0, 1.0),
    lambda a, b: a.addcmul_(b, b), lambda a, b: torch.cat([a, b], out=torch.empty(0)), lambda a, b: a.data.add_(1),
)
MODULES = (
    lambda: nn.Linear(N, N), lambda: nn.Linear(N, N, bias=False), lambda: nn.LayerNorm(N), lambda: nn.BatchNorm1d(N),
    lambda: nn.Sequential(nn.Linear(N, N), nn.ReLU(inplace=True), nn.Linear(N, N)), lambda: nn.LazyLinear(N),
    lambda: nn.PReLU(), lambda: nn.Bilinear(N, N, N), lambda: nn.GRUCell(N, N), lambda: nn.Embedding(N, N, sparse=True),
)
OPTIMIZERS = (
    lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True), torch.optim.Adam,
    lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=True), torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.ASGD,
    torch.optim.Adamax, torch.optim.Rprop, torch.optim.Adadelta,
)


class Square(torch.autograd.Function):
    """A user's operator."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Program:
    """The state of a random program, and its random steps."""

    def __init__(self, seed):
        self.choice = random.Random(seed)
        self.has_threads = seed % 4 == 0
        self.tensors = [torch.randn(N, N), torch.randn(N, N, requires_grad=True)]
        self.modules, self.optimizers = [], []
        for _ in range(self.choice.randrange(3)):
            self.make_module()

    def pick(self):
        return self.choice.choice(self.tensors)

    def keep(self, made):
        if isinstance(made, torch.Tensor) and self.choice.random() < 0.8:
            self.tensors.append(made)

    def make(self):
        self.keep(self.choice.choice(MADE)())

    def unary(self):
        self.keep(self.choice.choice(UNARY)(self.pick()))

    def binary(self):
        self.keep(self.choice.choice(BINARY)(self.pick(), self.pick()))

    def in_place(self):
        with torch.set_grad_enabled(self.choice.random() < 0.4):
            self.choice.choice(IN_PLACE)(self.pick(), self.pick())

    def drop(self):
        if len(self.tensors) > 3:
            del self.tensors[self.choice.randrange(len(self.tensors))]

    def make_module(self):
        module = self.choice.choice(MODULES)()
        self.modules.append(module)
        if self.choice.random() < 0.7 and not isinstance(module, nn.LazyLinear):
            self.optimizers.append(self.choice.choice(OPTIMIZERS)(list(module.parameters())))

    def drop_module(self):
        if self.modules:
            del self.modules[self.choice.randrange(len(self.modules))]

    def forward(self):
        x = torch.randn(N, N) if self.choice.random() < 0.5 else self.pick()
        for module in self.choice.sample(self.modules, self.choice.randint(0, len(self.modules))):
            if isinstance(module, nn.Embedding):
                x = module(torch.randint(0, N, (N,))) + x
            elif isinstance(module, (nn.Bilinear, nn.GRUCell)):
                x = module(x, x)
            elif self.choice.random() < 0.2:
                x = checkpoint(module, x, use_reentrant=self.choice.random() < 0.5)
            else:
                x = module(x)
        self.keep(x)

    def backward(self):
        loss = Square.apply(self.pick()).sum() if self.choice.random() < 0.5 else self.pick().square().mean()
        if self.choice.random() < 0.2:
            (grad,) = torch.autograd.grad(loss, self.pick(), create_graph=True)
            self.keep(grad)
        else:
            loss.backward(retain_graph=self.choice.random() < 0.3)

    def step(self):
        optimizer = self.choice.choice(self.optimizers)
        optimizer.step()
        if self.choice.random() < 0.7:
            optimizer.zero_grad(set_to_none=self.choice.random() < 0.7)

    def train(self):
        self.forward()
        self.tensors[-1].float().square().mean().backward()
        self.step()

    def by_hand(self):
        parameter = self.choice.choice(list(self.choice.choice(self.modules).parameters()))
        what = self.choice.randrange(5)
        with torch.no_grad():
            if what == 0:
                parameter.sub_(parameter.grad, alpha=0.1)
            elif what == 1:
                parameter.grad = torch.ones_like(parameter)
            elif what == 2:
                parameter.data = parameter.data.clone()
            elif what == 3:
                parameter.grad = None
            else:
                parameter.grad.mul_(0.5)

    def annotated(self):
        with torch.profiler.record_function("annotation"):
            self.one()
            self.one()

    def without_gradients(self):
        with (torch.no_grad if self.choice.random() < 0.5 else torch.inference_mode)():
            self.one()
            self.one()

    def elsewhere(self):
        # The profiler records neither the operators nor the memory of other threads; PyTorch's analysis then often fails.
        if self.has_threads:
            thread = threading.Thread(target=self.one)
            thread.start()
            thread.join()

    STEPS = (
        (make, 4), (unary, 8), (binary, 8), (in_place, 6), (drop, 7), (make_module, 1), (drop_module, 1), (forward, 5),
        (backward, 3), (step, 3), (train, 4), (by_hand, 2), (annotated, 1), (without_gradients, 1), (elsewhere, 2),
    )

    def one(self):
        (step,) = self.choice.choices([step for step, _ in self.STEPS], [weight for _, weight in self.STEPS])
        try:
            step(self)
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError, NotImplementedError):
            pass  # An operation with unsuitable arguments has no effect, or only a partial one.


def programs(seed, count):
    """Yields functions as in `optrace_models.MODELS`."""
    for number in range(seed, seed + count):
        def run(profile, number=number):
            torch.manual_seed(number)
            program = Program(number)
            for _ in range(program.choice.randrange(10)):
                program.one()
            with profile() as it:
                program.tensors.append(torch.zeros(N, N))
                for _ in range(program.choice.randrange(5, 60)):
                    program.one()
            return it

        run.__name__ = f"random-{number}"
        yield run
