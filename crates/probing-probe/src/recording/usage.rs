//! What rows say of the memory of the process.

use probing_store::Value;

use crate::recording::step;

/// What was measured.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) rss: Option<i64>,
    pub(crate) python_heap: Option<i64>,
    pub(crate) python_blocks: Option<i64>,
    pub(crate) gc: Option<[i64; 3]>,
    pub(crate) torch: Option<[i64; 2]>,
}

impl Usage {
    /// A row of this kind.
    pub(crate) fn values(&self, kind: u32) -> [Value<'static>; 10] {
        let value = |number: Option<i64>| number.map_or(Value::Null, Value::I64);
        let gc = |generation: usize| value(self.gc.map(|gc| gc[generation]));
        let torch = |which: usize| value(self.torch.map(|torch| torch[which]));
        [
            Value::Symbol(kind),
            value(self.rss),
            value(self.python_heap),
            value(self.python_blocks),
            gc(0),
            gc(1),
            gc(2),
            torch(0),
            torch(1),
            value(step::now()),
        ]
    }
}
