use super::*;

fn connection(settings: &ListenerSettings, shared: &Arc<Shared>) -> Connection {
    let here = SocketAddr::from(([127, 0, 0, 1], 1));
    let addresses = Addresses { client: here, peer: here, local: here };
    Connection::new(7, addresses, None, settings, Arc::clone(shared), Instant::now())
}

fn host(text: &str) -> Hostname {
    Hostname::parse(text).unwrap()
}

#[test]
fn ages_differ_by_a_tenth_at_most() {
    let hour = Duration::from_hours(1);
    let ages: Vec<_> = (0..1_000).map(|id| with_jitter(hour, id)).collect();
    assert!(ages.iter().all(|age| (3_240..=3_960).contains(&age.as_secs())));
    let mean = ages.iter().sum::<Duration>() / 1_000;
    assert!((3_560..=3_640).contains(&mean.as_secs()), "{mean:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_asks_to_be_closed_when_its_requests_or_its_time_are_used_up() {
    let (settings, shared) =
        (ListenerSettings { requests_per_connection: 2, ..ListenerSettings::default() }, Arc::default());
    let used = connection(&settings, &shared);
    used.request_seen();
    assert!(!used.should_close());
    used.request_seen();
    assert!(used.should_close());

    let old = connection(&settings, &shared);
    tokio::time::advance(Duration::from_secs(3_240 - 1)).await;
    assert!(!old.should_close());
    tokio::time::advance(Duration::from_secs(720 + 1)).await;
    assert!(old.should_close());

    let fresh = connection(&settings, &shared);
    shared.draining.store(true, Ordering::Release);
    assert!(fresh.should_close());
}

#[test]
fn a_connection_serves_the_hosts_it_was_used_for() {
    let (settings, shared) = (ListenerSettings::default(), Arc::default());
    let connection = connection(&settings, &shared);
    let gone = |name: &Hostname| name.as_str() == "gone.example";
    connection.record_host(&host("kept.example"));
    assert!(!connection.serves(&gone));
    connection.record_host(&host("gone.example"));
    assert!(connection.serves(&gone));
}

#[test]
fn a_connection_with_too_many_hosts_counts_as_using_all() {
    let (settings, shared) = (ListenerSettings::default(), Arc::default());
    let connection = connection(&settings, &shared);
    for number in 0..HOSTS_MAX {
        connection.record_host(&host(&format!("h{number}.example")));
    }
    assert!(!connection.should_close() && !connection.serves(&|_| false));
    connection.record_host(&host("one-more.example"));
    assert!(connection.should_close() && connection.serves(&|_| false));
}

#[test]
fn requests_in_flight_end_with_the_connection_at_the_latest() {
    let (settings, shared) = (ListenerSettings::default(), Arc::<Shared>::default());
    let connection = connection(&settings, &shared);
    connection.request_seen();
    connection.request_seen();
    connection.request_done();
    assert_eq!(shared.in_flight.load(Ordering::Acquire), 1);
    drop(connection);
    assert_eq!(shared.in_flight.load(Ordering::Acquire), 0);
}
