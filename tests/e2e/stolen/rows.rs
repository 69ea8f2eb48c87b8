//! The tables of SECURITY.md, with the attempt of each row.

/// A row of a table of SECURITY.md.
pub(super) struct Row {
    pub(super) with: &'static str,
    pub(super) until: &'static str,
    pub(super) afterwards: &'static str,
    /// The attempt, whether it works before the revocation, and whether it works afterwards.
    pub(super) tried: &'static [(Try, bool, bool)],
}

/// An attempt of a thief.
#[derive(Clone, Copy, Debug)]
pub(super) enum Try {
    Follow,
    GoOnFollowing,
    Report(&'static str),
    OperatorsApi,
    ServicesApi,
    GatewaysApi,
    SignToOrders,
    SignToControlPlane,
    SignWithPresentedKey,
    PresentedKeyAtAnotherGateway,
    TicketKeysOfAnotherGateway,
    OpenPrivateKey,
    Redis,
    PassAtItsOwnAdmin,
    PassAtAnotherAdmin,
    MakePass,
    HandInEvents,
    Erasures,
    KnownProject,
    OrdersDatabase,
    SeenTokenAtControlPlane,
}

pub(super) const GATEWAY: &[Row] = &[
    Row {
        with: "its credential",
        until: "follow the change stream: projects, plans, sites, digests of keys, sealed certificates; report usage, bans \
                and applied revisions as this gateway",
        afterwards: "nothing: refused at once, its stream is cut at once, in the middle of a snapshot too; by other replicas \
                     of the control plane within a second",
        tried: &[
            (Try::Follow, true, false),
            (Try::GoOnFollowing, true, false),
            (Try::Report("nodes"), true, false),
            (Try::Report("usage"), true, false),
            (Try::Report("keys"), true, false),
            (Try::OperatorsApi, false, false),
            (Try::ServicesApi, false, false),
        ],
    },
    Row {
        with: "its key for identities, which no other gateway has",
        until: "sign as any caller, towards services that keep no record of keys; at the control plane nothing without the \
                API key itself",
        afterwards: "refused by the platform's own services within about two seconds, also a request whose body was still on \
                     its way; by others when they ask for the key set; the other gateways' identities stay valid",
        tried: &[(Try::SignToOrders, true, false), (Try::SignToControlPlane, false, false)],
    },
    Row {
        with: "its keys for sessions",
        until: "read recorded sessions of TLS 1.2, and impersonate the platform in resumed sessions",
        afterwards: "the other gateways have new ones within a second or two",
        tried: &[(Try::TicketKeysOfAnotherGateway, true, false)],
    },
    Row {
        with: "the sealing secret, and its copy of the certificates",
        until: "impersonate the domains it serves",
        afterwards: "the same: change the sealing secret and revoke the certificates \
                     ([secrets](docs/operator/secrets.md#the-sealing-secret))",
        tried: &[(Try::OpenPrivateKey, true, true)],
    },
    Row {
        with: "its password for Redis",
        until: "change counts and bans",
        afterwards: "the same: change the password",
        tried: &[(Try::Redis, true, true)],
    },
    Row {
        with: "the traffic through it meanwhile",
        until: "everything that it serves, including API keys, which it can use like their owners; passes of operators who \
                ask it, which open its own admin listener and no other; sessions of the dashboard",
        afterwards: "all users sign in to the dashboard again; owners replace the API keys that passed through it",
        tried: &[
            (Try::SignWithPresentedKey, true, false),
            (Try::PresentedKeyAtAnotherGateway, true, true),
            (Try::PassAtItsOwnAdmin, true, true),
            (Try::PassAtAnotherAdmin, false, false),
        ],
    },
    Row {
        with: "the public key of operators' passes",
        until: "nothing",
        afterwards: "nothing",
        tried: &[(Try::MakePass, false, false)],
    },
];

pub(super) const SERVICE: &[Row] = &[
    Row {
        with: "the orders-service's credential",
        until: "send events of orders, which go to customers' webhooks; ask whether an identity is a project's; learn \
                which projects are erased, and confirm that it has erased them",
        afterwards: "nothing: refused at once, by other replicas of the control plane within a second",
        tried: &[
            (Try::HandInEvents, true, false),
            (Try::KnownProject, true, false),
            (Try::Erasures, true, false),
            (Try::OperatorsApi, false, false),
            (Try::GatewaysApi, false, false),
        ],
    },
    Row {
        with: "its password for its database",
        until: "read and change orders",
        afterwards: "the same: change the password",
        tried: &[(Try::OrdersDatabase, true, true)],
    },
    Row {
        with: "the traffic through it meanwhile",
        until: "orders; tokens of callers and passes of operators that are good at this service alone, for a minute",
        afterwards: "",
        tried: &[(Try::SeenTokenAtControlPlane, false, false)],
    },
];

/// A table of SECURITY.md.
pub(super) fn table(rows: &[Row]) -> String {
    let row = |row: &Row| format!("| {} | {} | {} |\n", row.with, row.until, row.afterwards).replace("  |", " |");
    let head = "| With | Until `tollhouse node revoke` | Afterwards |\n|---|---|---|\n";
    rows.iter().fold(head.to_owned(), |text, one| text + &row(one))
}

#[test]
pub(super) fn the_tables_of_the_security_policy_match_the_attempts() {
    let page = include_str!("../../../SECURITY.md");
    for rows in [GATEWAY, SERVICE] {
        assert!(page.contains(&table(rows)), "SECURITY.md is to have this table:\n{}", table(rows));
        assert!(rows.iter().all(|row| !row.tried.is_empty()), "a row that is not tried");
    }
}
