//! A small BERT of candle-transformers on the CPU. The model is not annotated: the layer turns candle's spans into scopes.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[global_allocator]
static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();

fn main() {
    tracing_subscriber::registry().with(memtrack_core::tracing::ScopeLayer::new()).init();
    let config = Config {
        vocab_size: 1000,
        hidden_size: 64,
        intermediate_size: 128,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        ..Config::default()
    };
    let model = BertModel::load(VarBuilder::zeros(DType::F32, &Device::Cpu), &config).expect("a model");
    let words = Tensor::zeros((4, 128), DType::U32, &Device::Cpu).expect("words");
    let kinds = words.zeros_like().expect("kinds");
    memtrack_core::start_monitor();
    let output = model.forward(&words, &kinds, None).expect("a forward pass");
    let recording = memtrack_core::stop();
    assert_eq!(output.dims(), [4, 128, 64]);
    let path = std::env::args().nth(1).expect("where to save");
    recording.save(path).expect("a recording");
}
