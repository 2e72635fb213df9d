use super::address::tests::layouts;
use super::*;
use proptest::prelude::*;

fn judge(policy: &EgressPolicy, url: &str) -> Result<Target, String> {
    policy.check_url(&Url::parse(url).map_err(|e| e.to_string())?)
}

fn passes(policy: &EgressPolicy, url: &str) -> bool {
    judge(policy, url).is_ok()
}

fn strict() -> EgressPolicy {
    EgressPolicy::parse(false, "443", "", "").unwrap()
}

fn with(cidrs: &str, hosts: &str) -> EgressPolicy {
    EgressPolicy::parse(true, "any", cidrs, hosts).unwrap()
}

fn dials(policy: &EgressPolicy, url: &str, ip: &str) -> bool {
    policy.check_dial(&judge(policy, url).unwrap(), ip.parse().unwrap()).is_ok()
}

#[test]
fn every_spelling_of_a_private_address_is_refused() {
    for host in [
        "10.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0",
        "127.0.0.1.",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "172.31.255.255",
        "[::1]",
        "[::]",
        "[::ffff:169.254.169.254]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[2002:a9fe:a9fe::1]",
        "[64:ff9b::a9fe:a9fe]",
        "[fc00::1]",
        "[fe80::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[2001::1]",
        "[100::1]",
        "[64:ff9b:1::1]",
        "[3fff::1]",
        "[5f00::1]",
        "[::ffff:0:7f00:1]",
        "[2a00:1450::5efe:10.0.0.1]",
        "127%2e0%2e0%2e1",
        "%31%32%37.0.0.1",
        "１２７．０．０．１",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "[0:0:0:0:0:ffff:10.0.0.1]",
    ] {
        assert!(!passes(&strict(), &format!("https://{host}/h")), "{host}");
        let error = judge(&strict(), &format!("https://{host}/h")).unwrap_err();
        assert!(!error.contains("10.0.0.1") && !error.contains("169.254"), "{error}");
    }
}

#[test]
fn names_of_the_inside_are_refused_in_every_spelling() {
    for host in [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "ip6-loopback",
        "ⓛocalhost",
        "ｌｏｃａｌｈｏｓｔ",
        "local%68ost",
        "localhost..",
        "db",
        "db.",
        "%64b",
        "printer.local",
        "metadata.google.internal",
        "metadata.google。internal",
        "a..b",
        "127.0.0.1..",
        ".",
        "x.onion",
        "sandbox.localdomain",
    ] {
        assert!(!passes(&strict(), &format!("https://{host}/h")), "{host}");
        let Err(reason) = judge(&strict(), &format!("https://{host}/h")) else { unreachable!() };
        assert!(!reason.contains("metadata") && !reason.contains("printer"), "{reason}");
    }
}

#[test]
fn public_addresses_pass() {
    for host in [
        "8.8.8.8",
        "172.32.0.1",
        "[2606:4700::1111]",
        "[64:ff9b::808:808]",
        "[::ffff:8.8.8.8]",
        "[2002:808:808::1]",
        "hooks.example.test",
        "hooks.example.test.",
        "bücher.example",
        "８.8.8.8",
        "134744072",
    ] {
        assert!(passes(&strict(), &format!("https://{host}/h")), "{host}");
    }
}

#[test]
fn scheme_user_info_and_port_are_judged() {
    for (url, word) in [
        ("http://8.8.8.8/", "AllowHttp"),
        ("https://8.8.8.8:8443/", "AllowedPorts"),
        ("https://a:b@8.8.8.8/", "user name"),
        ("https://a@8.8.8.8/", "user name"),
        ("https://:pw@8.8.8.8/", "user name"),
        ("https://hooks.example.test:pw@169.254.169.254/h", "user name"),
        ("https://hooks.example.test%3apw@10.0.0.1/h", "user name"),
        ("https://8.8.8.8:0/", "port 0"),
        ("ftp://8.8.8.8/", "https"),
        ("file:///etc/passwd", "https"),
        ("gopher://8.8.8.8/", "https"),
        ("data:text/plain,x", "https"),
        ("wss://8.8.8.8/", "https"),
        ("https://10.0.0.1/", "EgressAllowCidrs"),
        ("https://db/", "EgressAllowHosts"),
        ("https://169.254.169.254/", "EgressAllowHosts"),
    ] {
        let reason = judge(&strict(), url).unwrap_err();
        assert!(reason.contains(word), "{url}: {reason}");
        assert!(!reason.contains("pw") && !reason.contains("10.0") && !reason.contains("169"), "{reason}");
    }
    assert!(!passes(&with("", ""), "http://8.8.8.8:0/") && passes(&with("", ""), "http://8.8.8.8:1/"));
    // What the parser makes of a backslash is the host that is judged and dialled.
    assert_eq!(
        judge(&strict(), r"https:\\hooks.example.test\@127.0.0.1/h").unwrap().name.unwrap(),
        "hooks.example.test"
    );
    assert!(
        !passes(&strict(), r"https:\\127.0.0.1\h")
            && !passes(&strict(), "https:///")
            && !passes(&strict(), "https://@/")
    );
}

#[test]
fn private_networks_are_allowed_by_their_cidr_and_by_nothing_wider() {
    let local = with("127.0.0.0/8, 10.1.0.0/16, fd12::/16", "");
    for host in ["127.0.0.1:9", "10.1.2.3", "[::ffff:10.1.2.3]", "[fd12::1]", "localhost"] {
        assert!(passes(&local, &format!("http://{host}/")), "{host}");
    }
    let translated = with("64:ff9b:1::/48", "");
    assert!(
        passes(&translated, "http://[64:ff9b:1::10.0.0.5]/") && passes(&translated, "http://[64:ff9b:1:a00:0:500::]/")
    );
    for host in ["10.2.0.1", "[fd13::1]", "[::1]", "[::ffff:10.2.0.1]"] {
        assert!(!passes(&local, &format!("http://{host}/")), "{host}");
    }
    let carried = [
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::]",
        "[64:ff9b:1::a00:1]",
        "[::a00:1]",
        "[2001::f5ff:fffe]",
    ];
    for host in carried {
        for wide in ["::/0", "::/8,2000::/3", "64:ff9b::/32"] {
            assert!(
                !passes(&with(wide, ""), &format!("http://{host}/")),
                "{wide} does not speak of the IPv4 address in {host}"
            );
        }
    }
    for host in &carried[..3] {
        assert!(passes(&with("10.0.0.0/8", ""), &format!("http://{host}/")), "{host}");
        assert!(passes(&with("::ffff:0:0/96,64:ff9b::/96,2002:a00::/24", ""), &format!("http://{host}/")), "{host}");
    }
    assert!(passes(&with("::/0", ""), "http://[fd12::1]/") && passes(&with("::/0", ""), "http://[::1]/"));
}

#[test]
fn a_listed_name_may_be_private_and_only_that_name() {
    let policy =
        EgressPolicy::parse(false, "443", "", "db, hooks.corp:8443, *.apps.internal, 10.0.0.5:9443, Bücher.lan")
            .unwrap();
    for (url, ip) in [
        ("https://db/", "10.0.0.1"),
        ("https://DB./", "::1"),
        ("https://hooks.corp:8443/", "192.168.1.1"),
        ("https://a.apps.internal/", "fd12::1"),
        ("https://a.b.apps.internal/", "10.9.9.9"),
        ("https://xn--bcher-kva.lan/", "10.0.0.1"),
        ("https://10.0.0.5:9443/", "10.0.0.5"),
        ("https://[::ffff:10.0.0.5]:9443/", "::ffff:10.0.0.5"),
    ] {
        assert!(dials(&policy, url, ip), "{url}");
    }
    for url in [
        "https://db:8443/",
        "https://hooks.corp/",
        "https://apps.internal/",
        "https://xapps.internal/",
        "https://10.0.0.5/",
        "https://10.0.0.6:9443/",
        "https://other.lan/",
    ] {
        assert!(!passes(&policy, url), "{url}");
    }
    assert!(!dials(&policy, "https://hooks.example.test/", "10.0.0.5"), "the port is not the listed one");
    for never in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"] {
        assert!(!dials(&policy, "https://db/", never), "{never}");
    }
}

#[test]
fn a_suffix_lists_what_is_below_it_and_nothing_that_only_ends_alike() {
    let policy = EgressPolicy::parse(false, "443", "", "*.apps.internal").unwrap();
    for (host, listed) in [
        ("a.apps.internal", true),
        ("b.a.apps.internal", true),
        ("apps.internal", false),
        ("xapps.internal", false),
        ("eviltwinapps.internal", false),
    ] {
        assert_eq!(passes(&policy, &format!("https://{host}/")), listed, "{host}");
    }
}

#[test]
fn a_host_may_be_listed_twice() {
    let policy = EgressPolicy::parse(false, "443", "", "hooks.corp:8443, hooks.corp:8443").unwrap();
    assert!(passes(&policy, "https://hooks.corp:8443/"));
}

#[test]
fn the_runtime_and_the_metadata_services_stay_out_of_reach_unless_the_very_address_is_listed() {
    let all = |hosts| with("0.0.0.0/0, ::/0", hosts).with_runtime_api(Some("127.0.0.1:9001")).unwrap();
    let unreachable = [
        "127.0.0.1:9001",
        "127.9.9.9:9001",
        "[::1]:9001",
        "[::ffff:127.0.0.1]:9001",
        "localhost:9001",
        "0.0.0.0",
        "0.0.0.1",
        "[::]",
        "[::]:9001",
        "169.254.169.254",
        "169.254.170.2",
        "169.254.100.1:9001",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fd00:ec2::253]",
        "[fd00:ec2::23]",
        "224.0.0.1",
        "255.255.255.255",
        "[ff02::1]",
        "[64:ff9b::169.254.169.254]",
        "[2002:a9fe:a9fe::]",
        "[::169.254.169.254]",
        "[::ffff:0:169.254.169.254]",
        "[64:ff9b:1::169.254.169.254]",
        "[2a00::5efe:169.254.169.254]",
    ];
    for host in unreachable {
        let policy = all("169.254.169.254:81, 127.0.0.1:9002");
        assert!(!passes(&policy, &format!("http://{host}/")), "{host}");
    }
    assert!(passes(&all(""), "http://127.0.0.1:9002/") && passes(&all(""), "http://[::1]/"));
    assert!(passes(&all("169.254.169.254:80"), "http://169.254.169.254/"));
    assert!(passes(&all("[fd00:ec2::254]:80"), "http://[fd00:ec2::254]/"));
    assert!(passes(&all("127.0.0.1:9001"), "http://127.0.0.1:9001/"));
    assert!(!passes(&all("127.0.0.1:9001"), "http://127.0.0.2:9001/"));
    let elsewhere = with("10.0.0.0/8, 127.0.0.0/8", "").with_runtime_api(Some("10.0.0.9:9001")).unwrap();
    assert!(!passes(&elsewhere, "http://10.0.0.9/") && !passes(&elsewhere, "http://127.0.0.1:9001/"));
    assert!(passes(&elsewhere, "http://10.0.0.8:9001/"));
    let named = with("127.0.0.0/8", "").with_runtime_api(Some("sandbox:9001")).unwrap();
    assert!(!passes(&named, "http://127.0.0.1:9001/"));
}

#[test]
fn wrong_settings_are_named() {
    assert!(EgressPolicy::parse(false, "https", "", "").unwrap_err().contains("\"https\""));
    assert!(EgressPolicy::parse(false, "443,+80", "", "").unwrap_err().contains("+80"));
    assert!(EgressPolicy::parse(false, "443", "10.0.0.0", "").unwrap_err().contains("10.0.0.0"));
    for entry in [
        "10.0.0.1",
        "a/b",
        "a:0",
        "a:x",
        "a:70000",
        "*",
        "*.",
        "a..b",
        "a@b",
        "https://a",
        "10.0.0.1:0",
        "*.*.a",
        "a b",
    ] {
        assert!(EgressPolicy::parse(false, "443", "", entry).unwrap_err().contains(entry), "{entry}");
    }
    for wrong in ["", ":9001", "a b:1", "nonsense", "127.0.0.1", "127.0.0.1:0", "::1"] {
        assert!(strict().with_runtime_api(Some(wrong)).is_err(), "{wrong:?}");
    }
}

/// A URL host for this address, in one of the spellings that the URL parser knows.
fn spelt(ip: Ipv4Addr, how: usize) -> String {
    let [a, b, c, d] = ip.octets();
    match how {
        0 => ip.to_string(),
        1 => ip.to_bits().to_string(),
        2 => format!("{:#x}", ip.to_bits()),
        3 => format!("0{a:o}.0x{b:x}.{}", u32::from(c) << 8 | u32::from(d)),
        4 => format!("{a}.{}", ip.to_bits() & 0xff_ffff),
        5 => format!("{ip}."),
        6 => ip
            .to_string()
            .chars()
            .map(|c| if c == '.' { '。' } else { char::from_u32(c as u32 + 0xfee0).unwrap() })
            .collect(),
        7 => ip.to_string().bytes().map(|b| format!("%{b:02x}")).collect(),
        other => {
            let all = layouts(ip);
            format!("[{}]", all[other % all.len()].1)
        }
    }
}

proptest! {
    #[test]
    fn a_private_address_is_refused_in_any_spelling(
        net in prop::sample::select(vec!["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "100.64.0.0/10", "0.0.0.0/8"]),
        bits: u32,
        how in 0..19usize,
    ) {
        let net: ipnet::Ipv4Net = net.parse().unwrap();
        let ip = Ipv4Addr::from(net.network().to_bits() | bits & net.hostmask().to_bits());
        let url = format!("https://{}/", spelt(ip, how));
        prop_assert!(!passes(&strict(), &url), "{}", url);
    }

    #[test]
    fn an_embedded_address_is_judged_like_the_plain_one_by_every_policy(
        bits: u32, network: u32, length in 0..=32u8, port: u16,
    ) {
        let net = ipnet::Ipv4Net::new(Ipv4Addr::from(network), length).unwrap();
        let policy = with(&net.to_string(), "").with_runtime_api(Some("127.0.0.1:9001")).unwrap();
        let target = Target { name: None, port, listed: false };
        let v4 = Ipv4Addr::from(bits);
        let plain = policy.check_dial(&target, IpAddr::V4(v4)).is_ok();
        for (name, v6) in layouts(v4).into_iter().take(3) {
            prop_assert_eq!(plain, policy.check_dial(&target, IpAddr::V6(v6)).is_ok(), "{}", name);
        }
    }

    #[test]
    fn allowing_more_never_refuses_what_passed(bits: u128, v4: bool, extra: u128, length in 0..=32u8, port in 1..u16::MAX) {
        let ip = if v4 { IpAddr::V4(Ipv4Addr::from(bits as u32)) } else { IpAddr::V6(bits.into()) };
        let more = if v4 { IpAddr::V4(Ipv4Addr::from(extra as u32)) } else { IpAddr::V6(extra.into()) };
        let target = Target { name: None, port, listed: false };
        let narrow = with("10.0.0.0/8, fd00::/8", "10.0.0.5:80");
        let wide = with(&format!("10.0.0.0/8, fd00::/8, {more}/{length}"), &format!("10.0.0.5:80, a.internal, {}", SocketAddr::new(more, 81)));
        prop_assert!(narrow.check_dial(&target, ip).is_err() || wide.check_dial(&target, ip).is_ok());
        let listed = Target { listed: true, ..target.clone() };
        prop_assert!(wide.check_dial(&listed, ip).is_ok() || wide.check_dial(&target, ip).is_err());
    }

    #[test]
    fn no_setting_but_the_exact_address_reaches_a_platform_address(low in 1..=u16::MAX, layout in 0..11usize) {
        let v4 = Ipv4Addr::from(0xa9fe_0000 | u32::from(low));
        let all = with("0.0.0.0/0, ::/0", "*.test, a.internal, 169.254.0.0:443");
        for listed in [false, true] {
            let target = Target { name: None, port: 443, listed };
            prop_assert!(all.check_dial(&target, IpAddr::V4(v4)).is_err());
            prop_assert!(all.check_dial(&target, IpAddr::V6(layouts(v4)[layout].1)).is_err());
        }
    }

    #[test]
    fn no_text_makes_the_judge_panic(url in "https?://[^/]{0,40}/.{0,10}", entry in ".{0,30}") {
        if let Ok(url) = Url::parse(&url) {
            let _ = strict().check_url(&url);
        }
        let _ = EgressPolicy::parse(true, &entry, &entry, &entry);
        let _ = EgressPolicy::parse(true, "any", "", &entry);
    }
}
