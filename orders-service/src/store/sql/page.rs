//! Reads a page of orders: filters, sort and keyset pagination in SQL.

use chassis::sql::{Builder, Pool};
use contract::project::ProjectUid;

use super::{row, within};
use crate::order::{Order, ShipDate};
use crate::store::{After, PageQuery, Sort, StoreError};

pub(super) async fn read(pool: &Pool, project: &ProjectUid, page: &PageQuery) -> Result<Vec<Order>, StoreError> {
    let mut query = Builder::new(
        "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum FROM orders WHERE project = ",
    );
    query.push_bind(project.as_str());
    restrict(&mut query, page);
    if let Some(after) = page.after {
        resume(&mut query, page.sort, after);
    }
    // By default SQLite sorts NULL first and PostgreSQL last, so the statement names the place of NULL.
    query.push(match page.sort {
        Sort::Id => " ORDER BY id",
        Sort::IdDescending => " ORDER BY id DESC",
        Sort::ShipDate => " ORDER BY ship_date_micros NULLS FIRST, id",
        Sort::ShipDateDescending => " ORDER BY ship_date_micros DESC NULLS LAST, id DESC",
    });
    query.push(" LIMIT ").push_bind(i64::from(page.limit));
    let rows = within(query.build_as().fetch_all(pool)).await?;
    rows.into_iter().map(|columns| row::read(project, columns)).collect()
}

fn restrict(query: &mut Builder, page: &PageQuery) {
    let filter = &page.filter;
    if let Some(status) = filter.status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(pet_id) = filter.pet_id {
        query.push(" AND pet_id = ").push_bind(pet_id);
    }
    if let Some(complete) = filter.complete {
        query.push(" AND complete = ").push_bind(i64::from(complete));
    }
    if let Some(from) = filter.ship_date_from {
        query.push(" AND ship_date_micros >= ").push_bind(ShipDate::micros(from));
    }
    if let Some(before) = filter.ship_date_before {
        query.push(" AND ship_date_micros < ").push_bind(ShipDate::micros(before));
    }
}

/// Restricts the query to orders after the position. Orders without a ship date come first in ascending order and last
/// in descending order.
fn resume(query: &mut Builder, sort: Sort, after: After) {
    let id = after.id;
    match (sort, after.ship_date_micros) {
        (Sort::Id, _) => query.push(" AND id > ").push_bind(id),
        (Sort::IdDescending, _) => query.push(" AND id < ").push_bind(id),
        (Sort::ShipDate, Some(micros)) => {
            query.push(" AND (ship_date_micros, id) > (").push_bind(micros).push(", ").push_bind(id).push(")")
        }
        (Sort::ShipDate, None) => query.push(" AND (ship_date_micros IS NOT NULL OR id > ").push_bind(id).push(")"),
        (Sort::ShipDateDescending, Some(micros)) => query
            .push(" AND (ship_date_micros IS NULL OR (ship_date_micros, id) < (")
            .push_bind(micros)
            .push(", ")
            .push_bind(id)
            .push("))"),
        (Sort::ShipDateDescending, None) => query.push(" AND ship_date_micros IS NULL AND id < ").push_bind(id),
    };
}
