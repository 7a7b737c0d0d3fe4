//! `stack(func, depth)`: the frames of a thread folded into one line, as flame graphs have them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Expr, Signature, TypeSignature, Volatility, lit,
};

use crate::functions::joined::joined;

const BETWEEN: &str = ";";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    signature: Signature,
}

impl Stack {
    pub(super) fn new() -> Self {
        let signature = TypeSignature::Exact(vec![DataType::Utf8View, DataType::Int64]);
        Self {
            signature: Signature::new(signature, Volatility::Immutable),
        }
    }
}

/// Nothing but another name for what is long to write: `string_agg(func, ';' ORDER BY depth DESC)`.
impl AggregateUDFImpl for Stack {
    fn name(&self) -> &'static str {
        "stack"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeUtf8)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("stack(func, depth) cannot be used over a window")
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        Some(Box::new(|mut call: AggregateFunction, _| {
            let depth = call.params.args.remove(1);
            call.params.args.push(lit(BETWEEN));
            // Deep frames were called first.
            call.params.order_by = vec![depth.sort(false, true)];
            call.func = joined();
            Ok(Expr::AggregateFunction(call))
        }))
    }
}
