//! A statement with its values, and its result.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Encode, FromRow, Postgres, SqlSafeStr, SqlStr, Sqlite, Type};

use super::connection::{PooledConnection, in_time};
use super::{Connection, Pool, UnreadableRows};

/// A value that both databases support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Option<String>),
    /// A 64-bit whole number.
    Integer(Option<i64>),
    /// True or false.
    Flag(Option<bool>),
}

/// One value, or a tuple of several in the order of their placeholders.
pub trait Values {
    /// Appends them to those of a statement.
    fn append(self, values: &mut Vec<Value>);
}

macro_rules! values {
    ($($type:ty => $variant:ident by $convert:expr;)+) => {
        $(
            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Self::$variant(Some($convert(value)))
                }
            }

            impl From<Option<$type>> for Value {
                fn from(value: Option<$type>) -> Self {
                    Self::$variant(value.map($convert))
                }
            }

            impl Values for $type {
                fn append(self, values: &mut Vec<Value>) {
                    values.push(self.into());
                }
            }

            impl Values for Option<$type> {
                fn append(self, values: &mut Vec<Value>) {
                    values.push(self.into());
                }
            }
        )+
    };
}

values! {
    &str => Text by str::to_owned;
    &String => Text by String::clone;
    String => Text by std::convert::identity;
    i64 => Integer by std::convert::identity;
    bool => Flag by std::convert::identity;
}

macro_rules! tuples {
    ($($($name:ident)+;)+) => {
        $(
            impl<$($name: Into<Value>),+> Values for ($($name,)+) {
                #[expect(non_snake_case, reason = "a value is called like its type")]
                fn append(self, values: &mut Vec<Value>) {
                    let ($($name,)+) = self;
                    values.extend([$($name.into()),+]);
                }
            }
        )+
    };
}

tuples! {
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// Types that a row of either database can be read as: tuples, and structs made by [`crate::record!`].
pub trait Record: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Record for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

/// Where a statement runs: on any connection of a pool, or on a given one.
pub enum On<'c> {
    /// Any connection of this pool.
    Pool(&'c Pool),
    /// This connection.
    Connection(&'c mut Connection),
}

impl On<'_> {
    /// The same place, for one more statement.
    pub fn again(&mut self) -> On<'_> {
        match self {
            Self::Pool(pool) => On::Pool(pool),
            Self::Connection(connection) => On::Connection(connection),
        }
    }

    /// The rows that could not be read there.
    pub fn unreadable(&self) -> &UnreadableRows {
        match self {
            Self::Pool(pool) => pool.unreadable(),
            Self::Connection(connection) => connection.unreadable(),
        }
    }
}

impl<'c> From<&'c Pool> for On<'c> {
    fn from(pool: &'c Pool) -> Self {
        Self::Pool(pool)
    }
}

impl<'c> From<&'c mut Connection> for On<'c> {
    fn from(connection: &'c mut Connection) -> Self {
        Self::Connection(connection)
    }
}

/// The result of a statement without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done(u64);

impl Done {
    /// Number of rows written or deleted.
    pub fn rows_affected(self) -> u64 {
        self.0
    }
}

/// A statement whose rows, if any, are ignored.
#[derive(Clone, Debug)]
pub struct Query {
    text: SqlStr,
    values: Vec<Value>,
}

/// A statement; placeholders for values are `$1`, `$2` and so on.
pub fn query(text: impl SqlSafeStr) -> Query {
    Query { text: text.into_sql_str(), values: Vec::new() }
}

/// A statement that returns rows.
pub fn query_as<T: Record>(text: impl SqlSafeStr) -> QueryAs<T> {
    QueryAs { query: query(text), read: std::convert::identity }
}

/// A statement that returns one column.
pub fn query_scalar<T>(text: impl SqlSafeStr) -> QueryAs<(T,), T>
where
    (T,): Record,
{
    QueryAs { query: query(text), read: |(value,)| value }
}

/// Runs a statement on either kind of connection, with its timeout.
macro_rules! run {
    ($query:expr, $on:expr, |$text:ident, $arguments:ident, $pooled:ident| $run:expr) => {{
        let mut own;
        let connection = match $on.into() {
            On::Pool(pool) => {
                own = pool.acquire().await?;
                &mut own
            }
            On::Connection(connection) => connection,
        };
        let Query { text: $text, values } = $query;
        connection.busy = true;
        let limit = connection.limit;
        let result = match &mut connection.pooled {
            PooledConnection::Sqlite($pooled) => {
                let $arguments = arguments::<Sqlite, SqliteArguments>(values)?;
                in_time(limit, $run).await
            }
            PooledConnection::Postgres($pooled) => {
                let $arguments = arguments::<Postgres, PgArguments>(values)?;
                in_time(limit, $run).await
            }
            PooledConnection::Gone => Err(sqlx::Error::PoolClosed),
        };
        connection.finish_statement(result.as_ref().err());
        result
    }};
}

fn arguments<DB, A>(values: Vec<Value>) -> Result<A, sqlx::Error>
where
    DB: sqlx::Database<Arguments = A>,
    A: Arguments<Database = DB>,
    Option<String>: for<'q> Encode<'q, DB> + Type<DB>,
    Option<i64>: for<'q> Encode<'q, DB> + Type<DB>,
    Option<bool>: for<'q> Encode<'q, DB> + Type<DB>,
{
    let mut arguments = A::default();
    for value in values {
        match value {
            Value::Text(text) => arguments.add(text),
            Value::Integer(number) => arguments.add(number),
            Value::Flag(flag) => arguments.add(flag),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

impl Query {
    /// Binds the next values.
    #[must_use]
    pub fn bind(mut self, values: impl Values) -> Self {
        values.append(&mut self.values);
        self
    }

    /// Runs the statement, if only its success counts.
    pub async fn run<E: From<sqlx::Error>>(self, on: impl Into<On<'_>>) -> Result<(), E> {
        self.execute(on).await?;
        Ok(())
    }

    /// Runs the statement.
    pub async fn execute(self, on: impl Into<On<'_>>) -> Result<Done, sqlx::Error> {
        run!(self, on, |text, arguments, db| async {
            let done = sqlx::query_with(text, arguments).execute(&mut **db).await?;
            Ok(Done(done.rows_affected()))
        })
    }
}

/// A statement that returns rows of type `R`, each read as a `T`.
#[derive(Clone, Debug)]
pub struct QueryAs<R, T = R> {
    query: Query,
    read: fn(R) -> T,
}

impl<R: Record, T> QueryAs<R, T> {
    /// Binds the next values.
    #[must_use]
    pub fn bind(mut self, values: impl Values) -> Self {
        self.query = self.query.bind(values);
        self
    }

    /// All rows.
    ///
    /// # Errors
    /// If the database refuses or does not answer, or a row is not an `R`.
    pub async fn fetch_all(self, on: impl Into<On<'_>>) -> Result<Vec<T>, sqlx::Error> {
        let rows: Result<Vec<R>, sqlx::Error> =
            run!(self.query, on, |text, arguments, db| sqlx::query_as_with(text, arguments).fetch_all(&mut **db));
        Ok(rows?.into_iter().map(self.read).collect())
    }

    /// The first row, if there is one.
    pub async fn fetch_optional(self, on: impl Into<On<'_>>) -> Result<Option<T>, sqlx::Error> {
        let row: Result<Option<R>, sqlx::Error> =
            run!(self.query, on, |text, arguments, db| sqlx::query_as_with(text, arguments).fetch_optional(&mut **db));
        Ok(row?.map(self.read))
    }

    /// The first row.
    ///
    /// # Errors
    /// Like [`QueryAs::fetch_all`], or if there is none.
    pub async fn fetch_one(self, on: impl Into<On<'_>>) -> Result<T, sqlx::Error> {
        self.fetch_optional(on).await?.ok_or(sqlx::Error::RowNotFound)
    }
}

/// A statement built from pieces of text and values; placeholders are numbered automatically.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    text: String,
    values: Vec<Value>,
}

impl Builder {
    /// Starts with this text.
    pub fn new(text: &'static str) -> Self {
        Self { text: text.to_owned(), values: Vec::new() }
    }

    /// Appends text.
    pub fn push(&mut self, text: &'static str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a placeholder for a value.
    pub fn push_bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self.text.push_str(&format!("${}", self.values.len()));
        self
    }

    /// The finished statement.
    pub fn build(self) -> Query {
        // Text consists of literals, and values never become text.
        Query { text: sqlx::AssertSqlSafe(self.text).into_sql_str(), values: self.values }
    }

    /// The finished statement, which returns rows.
    pub fn build_as<T: Record>(self) -> QueryAs<T> {
        QueryAs { query: self.build(), read: std::convert::identity }
    }
}
