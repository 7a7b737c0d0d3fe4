//! Which group a row belongs to: each key gets a number, and so does each pair of them that comes.

mod numbers;
mod pairs;
mod texts;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch, UInt32Array,
};
use datafusion::arrow::compute::{cast, nullif, take};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;

pub(crate) use self::numbers::NONE;
use self::numbers::Numbers;
use self::pairs::Pairs;
use self::texts::Texts;

/// The groups so far.
#[derive(Debug)]
pub(crate) struct Keys {
    columns: Vec<Column>,
    /// Of each column behind the first: the number of what stands before it, and its own.
    pairs: Vec<Pairs>,
    /// Of the rows of one batch, kept for the next.
    groups: Vec<u32>,
    numbers: Vec<u32>,
}

#[derive(Debug)]
struct Column {
    values: Values,
    /// The number of no value, once there was such a row.
    nothing: Option<u32>,
}

#[derive(Debug)]
enum Values {
    /// And what they are besides numbers.
    Ints(Numbers, DataType),
    Texts(Texts),
}

/// Whether keys of this type are for [`Keys`].
pub(crate) fn is_for(data_type: &DataType) -> bool {
    use DataType::{Int32, Int64, Timestamp, UInt8, UInt16, UInt32, Utf8View};
    matches!(
        data_type,
        Int64 | Int32 | UInt8 | UInt16 | UInt32 | Timestamp(..) | Utf8View
    )
}

impl Keys {
    pub(crate) fn new(types: &[DataType]) -> Self {
        let pairs = types.iter().skip(1).map(|_| Pairs::new());
        Self {
            columns: types.iter().map(Column::new).collect(),
            pairs: pairs.collect(),
            groups: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Looks up the group of each row.
    pub(crate) fn take(&mut self, keys: &[ArrayRef]) -> Result<()> {
        self.groups.clear();
        for (place, (column, key)) in self.columns.iter_mut().zip(keys).enumerate() {
            let Some(before) = place.checked_sub(1) else {
                column.numbers(key, &mut self.groups)?;
                continue;
            };
            self.numbers.clear();
            column.numbers(key, &mut self.numbers)?;
            let pairs = &mut self.pairs[before];
            for (group, number) in self.groups.iter_mut().zip(&self.numbers) {
                *group = pairs.number(*group, *number);
            }
        }
        Ok(())
    }

    /// No more groups: keys that have not come before belong to [`NONE`] from now on.
    pub(crate) fn close(&mut self) {
        for column in &mut self.columns {
            match &mut column.values {
                Values::Ints(ints, _) => ints.close(),
                Values::Texts(texts) => texts.close(),
            }
        }
        for pairs in &mut self.pairs {
            pairs.close();
        }
    }

    /// The group of each row that was taken last.
    pub(crate) fn groups(&self) -> &[u32] {
        &self.groups
    }

    pub(crate) fn len(&self) -> usize {
        match self.pairs.last() {
            Some(pairs) => pairs.values().len(),
            None => self.columns.first().map_or(0, Column::len),
        }
    }

    pub(crate) fn size(&self) -> usize {
        let columns = self.columns.iter().map(Column::size).sum::<usize>();
        let pairs = self.pairs.iter().map(Pairs::size).sum::<usize>();
        let rows = self.groups.capacity() + self.numbers.capacity();
        columns + pairs + rows * size_of::<u32>()
    }

    /// The keys of each group.
    pub(crate) fn arrays(&self) -> Result<Vec<ArrayRef>> {
        let mut groups: Vec<u32> = (0..self.len() as u32).collect();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (place, column) in self.columns.iter().enumerate().rev() {
            let Some(before) = place.checked_sub(1) else {
                arrays.push(column.array(groups)?);
                break;
            };
            let pairs = self.pairs[before].values();
            let pair = |group: &u32| pairs[*group as usize];
            let own = groups.iter().map(|group| pair(group) as u32).collect();
            arrays.push(column.array(own)?);
            groups = groups
                .iter()
                .map(|group| (pair(group) >> 32) as u32)
                .collect();
        }
        arrays.reverse();
        Ok(arrays)
    }
}

impl Column {
    fn new(data_type: &DataType) -> Self {
        let values = if *data_type == DataType::Utf8View {
            Values::Texts(Texts::new())
        } else {
            Values::Ints(Numbers::new(), data_type.clone())
        };
        Self {
            values,
            nothing: None,
        }
    }

    fn len(&self) -> usize {
        match &self.values {
            Values::Ints(ints, _) => ints.values().len(),
            Values::Texts(texts) => texts.len(),
        }
    }

    fn size(&self) -> usize {
        match &self.values {
            Values::Ints(ints, _) => ints.size(),
            Values::Texts(texts) => texts.size(),
        }
    }

    /// Adds the number of each value.
    fn numbers(&mut self, array: &ArrayRef, numbers: &mut Vec<u32>) -> Result<()> {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let nulls = nulls.map(|nulls| (nulls, self.nothing()));
        match &mut self.values {
            Values::Texts(texts) => texts.numbers(array.as_string_view(), nulls, numbers),
            Values::Ints(ints, _) => {
                let array = cast(array, &DataType::Int64)?;
                let values = array.as_primitive::<Int64Type>().values();
                match nulls {
                    None => ints.numbers(values, numbers),
                    Some((nulls, nothing)) => {
                        numbers.extend(values.iter().zip(nulls).map(|(value, is_there)| {
                            if is_there {
                                ints.number(value.cast_unsigned())
                            } else {
                                nothing
                            }
                        }));
                    }
                }
            }
        }
        Ok(())
    }

    /// The number of no value.
    fn nothing(&mut self) -> u32 {
        *self.nothing.get_or_insert_with(|| match &mut self.values {
            Values::Ints(ints, _) => ints.reserve(),
            Values::Texts(texts) => texts.reserve(),
        })
    }

    /// The values with these numbers.
    fn array(&self, numbers: Vec<u32>) -> Result<ArrayRef> {
        let missing = self.nothing.map(|nothing| -> BooleanArray {
            let missing = numbers.iter().map(|number| Some(*number == nothing));
            missing.collect()
        });
        let array: ArrayRef = match &self.values {
            Values::Texts(texts) => take(&texts.array(), &UInt32Array::from(numbers), None)?,
            Values::Ints(ints, data_type) => {
                let ints = ints.values();
                let values = numbers.iter().map(|number| ints[*number as usize]);
                let values = values.map(u64::cast_signed);
                cast(&Int64Array::from_iter_values(values), data_type)?
            }
        };
        Ok(match missing {
            Some(missing) => nullif(&array, &missing)?,
            None => array,
        })
    }
}

/// The values of keys, or of whatever is made of the columns of a batch.
pub(crate) fn arrays(
    expressions: &[Arc<dyn PhysicalExpr>],
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    let rows = batch.num_rows();
    let arrays = expressions.iter();
    arrays
        .map(|expression| expression.evaluate(batch)?.into_array(rows))
        .collect()
}
