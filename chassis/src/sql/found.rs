//! Rows that are read column by column, so that one unreadable column fails neither its row nor other rows.
//!
//! SQLite stores any value in any column: damaged text, text in place of a number, bytes in place of text. PostgreSQL
//! refuses all of these.

use std::fmt::Write as _;

use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};

use super::BadColumn;

/// A row, and its unreadable column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The row. An unreadable column has the text of its bytes, or 0, `false` or nothing.
    pub row: T,
    /// The first unreadable column.
    pub bad: Option<BadColumn>,
}

impl<T> From<T> for Found<T> {
    fn from(row: T) -> Self {
        Self { row, bad: None }
    }
}

/// Types that are read from a row column by column: tuples, and structs made by [`crate::record!`].
pub trait Readable<'r, R: Row>: Sized {
    /// Reads the row, and records the first unreadable column.
    ///
    /// # Errors
    /// If the row has other columns: the statement is wrong, not the row.
    fn read(row: &'r R, bad: &mut Option<BadColumn>) -> Result<Self, sqlx::Error>;
}

impl<'r, R: Row, T: Readable<'r, R>> FromRow<'r, R> for Found<T> {
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let mut bad = None;
        Ok(Self { row: T::read(row, &mut bad)?, bad })
    }
}

/// Reads a row in which every column must be readable; [`crate::record!`] implements `FromRow` with it.
///
/// # Errors
/// Like [`Readable::read`], and for the first unreadable column.
pub fn whole<'r, R: Row, T: Readable<'r, R>>(row: &'r R) -> Result<T, sqlx::Error> {
    let Found { row, bad } = Found::from_row(row)?;
    bad.map_or(Ok(row), |bad| Err(bad.into()))
}

impl From<BadColumn> for sqlx::Error {
    fn from(bad: BadColumn) -> Self {
        Self::ColumnDecode { index: bad.column.to_owned(), source: bad.reason.into() }
    }
}

/// The value of one column.
pub trait Cell<'r, R: Row>: Sized {
    /// Reads the column at `index`, named `column`. If it is unreadable, and the first one, it is recorded in `bad`.
    ///
    /// # Errors
    /// If there is no such column.
    fn read<I>(row: &'r R, index: I, column: &'static str, bad: &mut Option<BadColumn>) -> Result<Self, sqlx::Error>
    where
        I: ColumnIndex<R> + Copy;
}

/// A column's value, or `None` with a record in `bad`.
fn value<'r, R, I, T>(
    row: &'r R,
    index: I,
    column: &'static str,
    bad: &mut Option<BadColumn>,
) -> Result<Option<T>, sqlx::Error>
where
    R: Row,
    I: ColumnIndex<R>,
    T: Decode<'r, R::Database> + Type<R::Database>,
{
    match row.try_get(index) {
        Ok(value) => Ok(Some(value)),
        Err(sqlx::Error::ColumnDecode { source, .. }) => {
            bad.get_or_insert_with(|| BadColumn { column, reason: source.to_string() });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

macro_rules! columns {
    ($($type:ty),+) => {
        $(
            impl<'r, R: Row> Cell<'r, R> for $type
            where
                $type: Decode<'r, R::Database> + Type<R::Database>,
            {
                fn read<I>(
                    row: &'r R,
                    index: I,
                    column: &'static str,
                    bad: &mut Option<BadColumn>,
                ) -> Result<Self, sqlx::Error>
                where
                    I: ColumnIndex<R> + Copy,
                {
                    Ok(value(row, index, column, bad)?.unwrap_or_default())
                }
            }
        )+
    };
}

columns!(i64, bool, Option<i64>, Option<bool>);

impl<'r, R: Row> Cell<'r, R> for Option<String>
where
    Self: Decode<'r, R::Database> + Type<R::Database>,
    Option<Vec<u8>>: Decode<'r, R::Database> + Type<R::Database>,
{
    fn read<I>(row: &'r R, index: I, column: &'static str, bad: &mut Option<BadColumn>) -> Result<Self, sqlx::Error>
    where
        I: ColumnIndex<R> + Copy,
    {
        if let Some(text) = value(row, index, column, bad)? {
            return Ok(text);
        }
        let bytes: Option<Vec<u8>> = row.try_get_unchecked(index)?;
        Ok(bytes.map(|bytes| lossless(&bytes)))
    }
}

impl<'r, R: Row> Cell<'r, R> for String
where
    Option<Self>: Cell<'r, R>,
{
    fn read<I>(row: &'r R, index: I, column: &'static str, bad: &mut Option<BadColumn>) -> Result<Self, sqlx::Error>
    where
        I: ColumnIndex<R> + Copy,
    {
        let text = <Option<Self> as Cell<'r, R>>::read(row, index, column, bad)?;
        if text.is_none() {
            bad.get_or_insert_with(|| BadColumn { column, reason: "it is NULL".to_owned() });
        }
        Ok(text.unwrap_or_default())
    }
}

/// Bytes as text: invalid UTF-8 becomes hexadecimal, so that different bytes give different texts, and none looks
/// valid.
fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

macro_rules! tuples {
    ($(($($type:ident $index:literal $name:literal),+);)+) => {
        $(
            impl<'r, R: Row, $($type: Cell<'r, R>),+> Readable<'r, R> for ($($type,)+)
            where
                usize: ColumnIndex<R>,
            {
                fn read(row: &'r R, bad: &mut Option<BadColumn>) -> Result<Self, sqlx::Error> {
                    Ok(($($type::read(row, $index, $name, bad)?,)+))
                }
            }
        )+
    };
}

tuples! {
    (A 0_usize "1");
    (A 0_usize "1", B 1_usize "2");
    (A 0_usize "1", B 1_usize "2", C 2_usize "3");
    (A 0_usize "1", B 1_usize "2", C 2_usize "3", D 3_usize "4", E 4_usize "5");
}

/// A struct that is read from a row, each field from the column of its name; or from [`Found`] of it, where one
/// unreadable row must not fail the others.
///
/// Replaces `#[derive(sqlx::FromRow)]`: sqlx's macros run in the compiler, so both database drivers, including
/// `SQLite`, would be built twice (docs/develop/build-times.md).
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_visibility:vis $field:ident: $type:ty,)+
    }) => {
        $(#[$meta])*
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type,)+
        }

        impl<'r, R: ::sqlx::Row> $crate::sql::Readable<'r, R> for $name
        where
            &'static str: ::sqlx::ColumnIndex<R>,
            $($type: $crate::sql::Cell<'r, R>,)+
        {
            fn read(
                row: &'r R,
                bad: &mut ::std::option::Option<$crate::sql::BadColumn>,
            ) -> ::std::result::Result<Self, ::sqlx::Error> {
                Ok(Self {
                    $($field: <$type as $crate::sql::Cell<'r, R>>::read(
                        row,
                        stringify!($field),
                        stringify!($field),
                        bad,
                    )?,)+
                })
            }
        }

        impl<'r, R: ::sqlx::Row> ::sqlx::FromRow<'r, R> for $name
        where
            $name: $crate::sql::Readable<'r, R>,
        {
            fn from_row(row: &'r R) -> ::std::result::Result<Self, ::sqlx::Error> {
                $crate::sql::whole(row)
            }
        }
    };
}
