//! Words of the pages: titles, buttons, explanations.

macro_rules! words {
    ($($name:ident = $text:literal;)+) => { $(pub(in crate::dashboard) const $name: &str = $text;)+ };
}

words! {
    // Around every page.
    PRODUCT = "Tollhouse";
    SKIP = "Skip to content";
    DOMAINS = "Domains";
    KEYS = "API keys";
    USAGE = "Usage";
    ACTIVITY = "Activity";
    WEBHOOKS = "Webhooks";
    OPERATOR = "Overview";
    PROJECTS = "Projects";
    SECTIONS = "Sections of the project";
    OPERATORS = "Operator";
    ACCOUNT = "Account";
    SIGN_OUT = "Sign out";
    SIGN_OUT_EVERYWHERE = "Sign out everywhere";
    COPY = "Copy";
    COPIED = "Copied";
    COPY_FAILED = "Press Ctrl+C to copy";
    CANCEL = "Cancel";
    MORE = "Show more";
    NEWEST = "Back to the newest";
    EXPECTED = "Expected";
    OBSERVED = "Observed";
    WHERE = "Where";
    WHAT_TO_DO = "What to do";
    NEXT_TRY = "Next attempt";
    NONE = "–";

    // Sign-in.
    SIGN_IN = "Sign in";
    SIGN_IN_LEAD = "Use an API key of your project. Keys start with th_live_ or th_test_.";
    KEY_LABEL = "API key";
    SIGN_IN_HINT = "The key stays between you and this page: your browser gets a session in its place, which ends after an hour without use.";
    NO_KEY_YET = "No key yet? Ask the operator of your platform for a first one; with it you can make more.";
    SIGNED_OUT = "You are signed out.";
    FORM_KEPT = "Your session has ended, so nothing was changed yet. Sign in, and what you sent is here again.";
    SIGNED_IN_AGAIN = "You are signed in again";
    FORM_AGAIN = "This is what you sent when your session had ended. Nothing of it has been done yet.";
    SEND_FORM = "Send it now";
    LEAVE_FORM = "Do not send it";
    NOT_A_KEY = "This is not a key: it is incomplete or mistyped. Copy it again, from th_ to its last character.";
    UNKNOWN_KEY = "This key is not valid here: it is revoked, expired, or belongs to another platform.";
    KEY_WITHOUT_USE = "This key may neither see domains nor make keys. Use one with the scope domains:read, domains:write or keys:write.";
    ENTER = "Sign in as operator";
    ENTER_LEAD = "This link signs you in as an operator of the platform: every project, every domain. It works once.";
    LINK_SPENT = "This link is used up or older than five minutes. Make another: tollhouse dashboard-link";

    // When a page cannot be shown.
    NOTHING_HERE = "There is nothing at this address.";
    FOREIGN_FORM = "The form was not sent from a page of this dashboard, so nothing was changed.";
    STALE_FORM = "The form belongs to an earlier session, so nothing was changed. Go back, reload the page and try again.";
    INVALID_FORM = "The form could not be read.";
    TOO_MANY_WATCHERS = "Too many pages are being kept up to date. This one reloads by itself.";
    SCOPE_HINT = "The key you signed in with may not do this. Sign in with one that has the scope, or make one under API keys.";
    TO_START = "To the start page";

    // Domains.
    ADD_DOMAIN = "Add domain";
    FIRST_DOMAIN = "Add your first domain";
    NO_DOMAINS = "No domain yet";
    NO_DOMAINS_LEAD = "Your project is served on the platform's own name. Add a domain of yours, create one DNS record, and visitors reach it there, with a certificate that renews by itself.";
    PLAN_REQUIRED = "Custom domains come with the Pro plan";
    PLAN_REQUIRED_LEAD = "This project is on the Free plan, which is served on the platform's own name. With Pro or above you can attach domains of your own.";
    SEE_PLANS = "Compare plans";
    NOT_DEPLOYED = "Deploy first";
    NOT_DEPLOYED_LEAD = "A domain can be added once the project has been deployed successfully.";
    DOMAINS_UNTIL = "The plan does not include custom domains any more. Those that are here are served until";
    DOMAINS_UNTIL_THEN = "After that visitors are not served there, until the plan includes them again.";
    SUSPENDED_LEAD = "The project is suspended: all its hosts answer 403. Talk to the operator of the platform.";
    SERVED_AT = "Served at";
    DOMAIN = "Domain";
    CERTIFICATE = "Certificate";
    PRIMARY = "Primary";

    ADD_LEAD = "Enter the domain or subdomain that visitors should use.";
    NAME_LABEL = "Domain";
    NAME_HINT = "For example shop.example.com, or example.com itself.";
    CHECK = "Check";
    CHECKING = "Checking…";
    WHAT_IT_NEEDS = "What it needs";
    IS_APEX = "This is an apex domain: it has no label in front. A CNAME cannot stand there, so create an ALIAS or ANAME record. Not every DNS provider offers them; if yours does not, use a subdomain such as www.";
    IS_SUBDOMAIN = "This is a subdomain: one CNAME record does it.";
    IS_LOCAL = "This name always means your own machine, so there is nothing to create.";
    IS_CONTESTED = "Another project has this name, or had it. You will be asked to prove that it is yours with a TXT record.";
    IS_READY = "Everything is in place already.";
    CREATE_RECORDS = "Create at your DNS provider";
    RECORD_HINT = "Copy each value exactly. Leave proxying switched off.";
    IN_THE_WAY = "In the way";
    PAIR = "Also add";
    PAIR_HINT = "Visitors try both. Once both are live, one can redirect to the other.";
    AS_PRIMARY = "Make it the primary domain once it is live";

    RECORDS = "DNS records";
    TYPE = "Type";
    NAME = "Name";
    VALUE = "Value";
    TTL = "TTL";
    STATE = "State";
    PROBLEMS = "What stands in the way";
    NOBODY_ACTS = "Time must pass";
    ACT_HERE = "Something only you can change stands in the way. It is named below, with what to do.";
    SUSPENDED_HERE = "Visitors are not served here at present. What is needed is named below.";
    VERIFY = "Verify";
    VERIFY_AGAIN = "Re-verify";
    CHECKED = "Last checked";
    NEXT_CHECK = "next check";
    CHECKED_NOT_YET = "Checked just now: it is not there yet. What is missing stands below.";
    MENU = "Menu";
    SEARCH = "Part of the name";
    FILTER = "Status";
    FILTER_ALL = "any";
    FIND = "Find";
    NOTHING_FOUND = "No domain is like that.";
    SHOW_ALL = "Show all";
    NOT_CHECKED = "Not checked yet.";
    PROGRESS = "Progress";
    STEP_RECORD = "DNS record";
    STEP_PROOF = "Proof of ownership";
    STEP_CERTIFICATE = "Certificate";
    STEP_LIVE = "Live";
    STEP_DONE = "done";
    STEP_NOW = "in progress";
    STEP_STUCK = "stuck";
    STEP_LATER = "later";
    NAMESERVERS = "What your nameservers answer";
    NAMESERVERS_LEAD = "Each authoritative nameserver of your zone, asked directly: what the world will see once caches have expired.";
    NAMESERVER = "Nameserver";
    ANSWER = "Answer";
    VERDICT = "Verdict";
    NO_ANSWER = "nothing";
    AUTHORITY = "Authority";
    VALID_FROM = "Valid from";
    VALID_UNTIL = "Valid until";
    RENEWS = "Renews";
    KEY_TYPE = "Key";
    SERIAL = "Serial number";
    LAST_ERROR = "Last error";
    CERTIFICATE_HISTORY = "Certificate history";
    SETTINGS = "Settings";
    PRIMARY_YES = "This is the primary domain: others can redirect to it.";
    PRIMARY_LEAD = "Visitors of domains that redirect to the primary one end up there.";
    MAKE_PRIMARY = "Make primary";
    STOP_PRIMARY = "No longer primary";
    PRIMARY_LATER = "A domain can be made primary once it is live.";
    REDIRECT = "Redirect";
    REDIRECT_TO = "Redirect visitors to";
    REDIRECT_OFF = "Nowhere: serve the project here";
    REDIRECT_PRIMARY = "the primary domain";
    REDIRECT_STATUS = "Status";
    REDIRECT_AUTO = "Automatic: 301, or 308 for requests with a body";
    REDIRECT_301 = "301 Moved permanently";
    REDIRECT_302 = "302 Found, for a while";
    REDIRECT_307 = "307 For a while, method kept";
    REDIRECT_308 = "308 Permanently, method kept";
    REDIRECT_NO_TARGET = "There is no other live domain to redirect to.";
    SAVE = "Save";
    HISTORY = "History";
    REMOVE = "Remove";
    REMOVE_DOMAIN = "Remove domain";
    REMOVE_LEAD = "Traffic stops at once, on every gateway. You can add the domain again later.";
    REMOVE_REDIRECTING = "These domains redirect to it and must go somewhere else first, or be removed as well:";
    REMOVE_WITH = "Remove them too";
    REMOVED = "Domain removed";
    LAGGING = "These gateways have not said so yet; they are asked until they have:";
    DOMAIN_LAGGING = "These gateways have not acknowledged the last change and may answer as before:";
    KEY_LAGGING = "It has ended. These gateways have not acknowledged that and may accept it still:";
    KEY_END_LAGGING = "It ends sooner than before. These gateways have not acknowledged that and may accept it for longer:";
    WITHDRAWALS = "Withdrawn, and not on every gateway";
    NO_WITHDRAWALS = "Every gateway has acknowledged everything that was withdrawn.";
    WITHDRAWALS_MORE = "Only the oldest are shown. All: tollhouse status";
    WAITS_FOR = "Waits for";
    WITHDRAWN_WHAT = "Withdrawn";
    KEEP_DNS_CLEAN = "You may delete its DNS record now. While it stays, it points at a platform that no longer answers for the name.";
    TO_DOMAINS = "To the domains";

    // Keys.
    KEYS_LEAD = "A key is what a program sends as Authorization: Bearer. All keys of the project share its limits.";
    NEW_KEY = "Create key";
    KEY_NAME = "Label";
    KEY_NAME_HINT = "What the key is for, for example: checkout, production.";
    SCOPES = "Scopes";
    SCOPES_HINT = "Give a key no more than it needs.";
    NOT_YOURS = "your own key lacks it";
    EXPIRES = "Expires";
    NEVER = "Never";
    DAYS_30 = "In 30 days";
    DAYS_90 = "In 90 days";
    DAYS_365 = "In a year";
    MADE = "Copy the key now";
    MADE_LEAD = "It is shown this once. We keep only its digest, so nobody can show it again.";
    NO_KEYS = "No key in use.";
    KEYS_GONE = "Revoked and expired";
    CREATED = "Created";
    USED = "Used";
    NEVER_USED = "Never used";
    BANNED_KEY = "Banned";
    BANNED_ENDS = "The ban ends at";
    THIS_KEY = "you are signed in with it";
    ROTATE = "Rotate";
    ROTATE_LEAD = "Makes a new key like this one. The old one goes on working for:";
    OVERLAP_NONE = "no time: it stops now";
    OVERLAP_HOUR = "an hour";
    OVERLAP_DAY = "a day";
    OVERLAP_WEEK = "a week";
    REVOKE = "Revoke";
    REVOKE_LEAD = "Whatever uses it is refused within a second, for good.";
    REVOKE_OWN = "It is the key you are signed in with: you will be signed out.";
    REVOKED = "Revoked";
    EXPIRED = "Expired";

    // Usage.
    THIS_MINUTE = "This minute";
    TODAY = "Today";
    OF = "of";
    LEFT = "left";
    USAGE_LEAD = "Requests with an API key, on all hosts of the project together. Minutes and days are those of UTC; figures are a few seconds old.";
    USAGE_PUBLIC = "This project is a public site: its visitors need no key and are not counted.";
    LAST_30_DAYS = "The last 30 days";
    ADMITTED = "Admitted";
    REFUSED = "Refused: limit reached";
    BANNED = "Refused: key banned";
    REFUSED_LEGEND = "Refused or banned";
    NO_REQUESTS = "No request in the last 30 days.";
    NO_REQUESTS_LEAD = "Send one with a key of the project and it appears here within seconds.";
    AS_TABLE = "Show as a table";
    DATE = "Date";
    PLANS = "Plans";
    PLAN = "Plan";
    PER_MINUTE = "Requests per minute";
    PER_DAY = "Requests per day";
    CUSTOM_DOMAINS = "Custom domains";
    YOUR_PLAN = "your plan";
    AGREED = "by agreement";
    UPGRADE_HINT = "Plans are changed by the operator of the platform. A change is in force within a second.";

    // Activity.
    ACTIVITY_LEAD = "What happened in the project, by whom and from where.";
    NO_EVENTS = "Nothing has happened yet.";
    WHEN = "When";
    WHAT = "What";
    WHO = "By";

    // Webhooks.
    WEBHOOKS_LEAD = "We send a signed message to your address when something happens to a domain, and try for three days.";
    NO_WEBHOOKS = "No webhook yet.";
    NEW_WEBHOOK = "Add webhook";
    URL = "Address";
    URL_HINT = "An https address of yours that answers 2xx.";
    DESCRIPTION = "Description";
    EVENTS = "Events";
    EVENTS_HINT = "Nothing ticked means everything.";
    SECRET_MADE = "Copy the signing secret now";
    SECRET_LEAD = "It is shown this once. With it your receiver checks that a message is ours.";
    DELIVERIES = "Deliveries";
    NO_DELIVERIES = "Nothing has been sent yet.";
    SEND_AGAIN = "Send again";
    SEND_TEST = "Send a test message";
    PAYLOAD = "What was sent";
    NEXT_ATTEMPT = "next attempt";
    ATTEMPTS = "Attempts";
    LAST_DELIVERY = "Last delivery";
    OPEN_SITE = "Open the site";
    FAILING_SINCE = "Failing since";
    FAILING = "On, and failing";
    ROTATE_SECRET_LEAD = "Messages carry signatures of both secrets for a day; then the old one is gone.";
    REMOVE_WEBHOOK_LEAD = "Nothing is sent to it any more, and what waits for it is dropped.";
    SWITCH_OFF_LEAD = "Nothing is sent to it while it is off. What happens meanwhile is not told later.";
    SWITCH_ON = "Switch on";
    SWITCH_OFF = "Switch off";
    ROTATE_SECRET = "New secret";
    ON = "On";
    OFF = "Off";

    // Operator.
    GATEWAYS = "Gateways";
    NO_GATEWAYS = "No gateway has reported since this service started.";
    REVISION = "Revision";
    BEHIND = "Behind";
    VERSION = "Version";
    LIVE = "Live";
    SILENT = "Silent";
    LAST_HEARD = "Last heard";
    CERTIFICATES_ENDING = "Certificates that end soonest";
    NO_CERTIFICATES = "No certificate is in service.";
    STUCK = "Domains that need somebody";
    NO_STUCK = "None. Every domain is live or on its way.";
    SINCE = "Since";
    PROJECT = "Project";
    AT_A_GLANCE = "At a glance";
    AUTHORITIES = "Certificate authorities";
    NO_AUTHORITIES = "none";
    BANS = "Bans";
    BANS_LEAD = "Keys that gateways refuse for a while, as they reported in the last half minute. A command on the platform's machine lets one in again at once.";
    NO_BANS = "None. No key is refused for not backing off.";
    BAN_LIFT = "command that lifts the ban";
    UNTIL = "Until";
    NO_SUCH_KEY = "a key that is gone";
    NOT_DEPLOYED_YET = "not deployed";
    IS_SUSPENDED = "suspended";
}

/// The title of a page that says why another one cannot be shown.
pub(in crate::dashboard) const fn fault_title(status: u16) -> &'static str {
    match status {
        403 => "Not allowed",
        404 => "Not found",
        429 => "Too many attempts",
        400..500 => "That did not work",
        _ => "Not available right now",
    }
}

/// What was just done, by the word in the address.
pub(in crate::dashboard) fn note(query: &str) -> Option<&'static str> {
    match query {
        "verified" => Some("Checked just now."),
        "made" => Some("It was shown once. If it was not copied, make another and take the old one away."),
        "verifying" => Some("The check is taking longer than usual. Its result appears here."),
        "saved" => Some("Saved. It is in force on every gateway within a second."),
        "revoked" => Some("The key is revoked."),
        "removed" => Some("The webhook is removed."),
        "tested" => Some("A test message is on its way. What becomes of it is listed below."),
        "repeated" => Some("It is being sent again."),
        _ => None,
    }
}
