//! The rules that infer categories. Each rule has a name, a category, a confidence, and a sentence that states
//! when it applies. `decide` and `follow` apply the rules.

use crate::Category;

/// The reliability of a rule that infers the category of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Confidence {
    /// The file states the category.
    Given,
    /// A frame or a scope names the purpose.
    Named,
    /// Frames or scopes, along with the order of events, leave hardly any other possibility.
    Likely,
    /// Only the order of events or a size supports the category.
    Guess,
}

impl Confidence {
    /// Returns the name of the confidence level.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Named => "named",
            Self::Likely => "likely",
            Self::Guess => "guess",
        }
    }
}

macro_rules! rules {
    ($($rule:ident = $name:literal, $category:ident, $confidence:ident, $when:literal;)*) => {
        /// A rule that classifies blocks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $when] $rule,)*
        }

        impl Rule {
            /// All rules in the order in which they are tried.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// Returns the rule's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$rule => $name,)* }
            }

            /// Returns the category that the rule assigns, or [`Category::Unknown`] if it depends on the
            /// block.
            pub const fn category(self) -> Category {
                match self { $(Self::$rule => Category::$category,)* }
            }

            /// Returns how reliable the rule is.
            pub const fn confidence(self) -> Confidence {
                match self { $(Self::$rule => Confidence::$confidence,)* }
            }

            /// Returns a sentence that states when the rule applies.
            pub const fn when(self) -> &'static str {
                match self { $(Self::$rule => $when,)* }
            }
        }
    };
}

rules! {
    Given = "given", Unknown, Given,
        "The file gives the category of the block's event.";
    SameCall = "same-call", Temporary, Likely,
        "The operator call that allocated the block also freed it.";
    AccumulateGrad = "accumulate-grad", Gradient, Named,
        "AccumulateGrad, autograd's node that keeps the gradient of a parameter, allocated the block.";
    ReducedGradient = "reduced-gradient", Gradient, Named,
        "DistributedDataParallel's reducer or a reduction of FSDP allocated the block.";
    GatheredParameter = "gathered-parameter", Parameter, Named,
        "FSDP put a parameter's shards together in the block.";
    BackwardSeed = "backward-seed", Activation, Named,
        "backward() made the gradient of the loss that it begins with; PyTorch counts that as an activation.";
    StateInit = "optimizer-state-init", OptimizerState, Named,
        "The function of torch.optim that makes an optimizer's state allocated the block.";
    ReplacedInStep = "replaced-in-step", Unknown, Likely,
        "An optimizer's step allocated the block, kept it and freed a block of the same size; the new block has the category \
         of the freed one.";
    ReplacedGuess = "replaced-guess", Unknown, Guess,
        "An optimizer's step allocated the block, kept it and freed a block of the same size, whose category is a guess.";
    KeptByStep = "kept-by-step", OptimizerState, Likely,
        "An optimizer's step allocated the block, and it outlived the step.";
    FreedInStep = "freed-in-step", OptimizerTemporary, Likely,
        "An optimizer's step allocated the block and freed it, or ran out of memory before its end.";
    Recomputed = "recomputed", AutogradDetail, Named,
        "Activation checkpointing allocated the block when the backward pass ran a forward pass again; PyTorch counts that as \
         a detail of the backward pass.";
    GradientKept = "outlives-backward", Gradient, Likely,
        "The backward pass allocated the block, and it outlived the pass.";
    GradientBySize = "outlives-nodes", Gradient, Guess,
        "The backward pass allocated the block, no allocation of the pass came after its free, and a parameter has its size.";
    Backward = "backward", AutogradDetail, Likely,
        "The backward pass allocated the block and freed it, or ran out of memory before its end.";
    NoFramesKept = "no-frames-kept", Gradient, Guess,
        "The block has no frames although the file has Python's, as in autograd's own threads, and it outlived the \
         backward pass.";
    NoFramesInBackward = "no-frames", AutogradDetail, Guess,
        "The block has no frames although the file has Python's: autograd's own threads run no Python.";
    ModuleMoved = "module-moved", Parameter, Named,
        "Module.to or one of its siblings allocated the block, which may also be a buffer.";
    WeightsLoaded = "weights-loaded", Parameter, Named,
        "A file of weights was being read, or a state_dict applied.";
    ModuleBuilt = "module-built", Parameter, Named,
        "The constructor of a PyTorch module allocated the block, which may also be a buffer, or moved later.";
    OptimizerBuilt = "optimizer-built", OptimizerState, Likely,
        "The constructor of a class or file that is called an optimizer allocated the block.";
    InputLoaded = "input-loaded", Input, Named,
        "A DataLoader allocated the block.";
    ScopeOptimizerKept = "scope-optimizer-kept", OptimizerState, Likely,
        "The block was allocated in an optimizer's scope and outlived it.";
    ScopeOptimizer = "scope-optimizer", OptimizerTemporary, Likely,
        "The block was allocated in an optimizer's scope and freed there, or memory ran out in the scope.";
    ScopeBackwardKept = "scope-backward-kept", Gradient, Likely,
        "The block was allocated in a backward scope and outlived it.";
    ScopeBackward = "scope-backward", AutogradDetail, Likely,
        "The block was allocated in a backward scope and freed there, or memory ran out in the scope.";
    ScopeTemporary = "scope-temporary", Temporary, Guess,
        "The block was allocated in an operator's scope, and freed before its thread allocated anything outside of the operator.";
    ScopeForward = "scope-forward", Activation, Likely,
        "The block was allocated in a module's scope.";
    HeldByGraph = "held-by-graph", Activation, Named,
        "Autograd's graph held the block for a backward pass, and freed it when the graph was dropped.";
    SavedForBackward = "saved-for-backward", Activation, Likely,
        "A forward pass allocated the block, and the backward pass freed it.";
    Forward = "forward", Activation, Likely,
        "A forward pass allocated the block.";
    Functional = "functional", Activation, Likely,
        "A function of torch.nn.functional allocated the block.";
    ObjectBuilt = "object-built", Parameter, Guess,
        "A constructor allocated the block, and a forward pass came after it.";
    InputMade = "input-made", Input, Likely,
        "Outside of modules, before the forward pass, the block was made from no other tensor or copied to the device.";
    HeldForBackward = "held-for-backward", Activation, Likely,
        "Outside of modules, the block was made before a backward pass, which freed it.";
    BeforeBackward = "before-backward", Activation, Guess,
        "Outside of modules, the block was made where a backward pass came next.";
    FreedByZeroGrad = "freed-by-zero-grad", Gradient, Named,
        "The block is older than the trace, and zero_grad freed it.";
    OldFreedInBackward = "old-freed-in-backward", Activation, Likely,
        "The block is older than the trace, and a backward pass freed it.";
    OldFreedInStep = "old-freed-in-step", OptimizerState, Guess,
        "The block is older than the trace, and an optimizer's step freed it.";
    WrittenInBackward = "written-in-backward", Gradient, Likely,
        "The block is older than the trace, and a backward pass wrote it in place.";
    WrittenInForward = "written-in-forward", Buffer, Likely,
        "The block is older than the trace, and was written in place in a forward pass.";
    SizeOfGradient = "size-of-gradient", Parameter, Guess,
        "The block is older than the trace, and a gradient has its size: as many blocks of the size as gradients.";
    SizeOfGradientAgain = "size-of-gradient-again", OptimizerState, Guess,
        "The block is older than the trace, and has the size of gradients, for each of which there is a parameter already.";
    EarlySizeOfGradient = "early-size-of-gradient", Parameter, Guess,
        "The block was made before the first step and kept, and a gradient has its size: as many such blocks as gradients.";
    EarlySizeAgain = "early-size-again", OptimizerState, Guess,
        "The block was made before the first step and kept; for each gradient of its size there is a parameter already.";
    WrittenInStep = "written-in-step", OptimizerState, Guess,
        "The block is older than the trace, an optimizer's step wrote it in place, and no gradient has its size.";
    FrozenParameter = "frozen-parameter", Parameter, Guess,
        "The block is older than the trace and outlived its steps, several of them, none of which wrote it; no gradient has its \
         size.";
    OldAndUntouched = "old-and-untouched", Input, Guess,
        "The block is older than the trace, and was freed outside of the passes before the last one; no gradient has its size, and \
         no step wrote it. In a profile it may also be there at the end.";
    OldInInference = "old-in-inference", Parameter, Guess,
        "The block is older than the trace, which has a forward pass and no backward one, and was never freed.";
}
