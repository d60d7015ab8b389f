use proptest::prelude::*;

use super::*;

fn claim(raw: &str) -> Claim {
    Claim::parse(raw).unwrap_or_else(|error| panic!("{raw:?}: {error}"))
}

#[test]
fn every_spelling_of_a_path_is_one_claim() {
    for (raw, canonical) in [
        ("src/a.rs", "src/a.rs"),
        ("./src/a.rs", "src/a.rs"),
        ("src//a.rs", "src/a.rs"),
        ("src/./a.rs", "src/a.rs"),
        ("src/x/../a.rs", "src/a.rs"),
        ("src/a.rs/", "src/a.rs"),
        ("src/a.rs/**", "src/a.rs"),
        ("src/a.rs/./**/", "src/a.rs"),
        (".", "."),
        ("./", "."),
        ("src/..", "."),
        ("**", "."),
        ("./**", "."),
        ("src/**", "src"),
        ("src\\a.rs", "src\\a.rs"),
        ("my dir/a file", "my dir/a file"),
        ("app/[slug]/(group)/page.tsx", "app/[slug]/(group)/page.tsx"),
        ("app/[[...all]]/{id}", "app/[[...all]]/{id}"),
        ("{{cookiecutter.name}}/x", "{{cookiecutter.name}}/x"),
        ("~lock", "~lock"),
        ("src/~", "src/~"),
        ("...", "..."),
        (".github", ".github"),
        ("u\u{308}ber", "\u{fc}ber"),
        ("1\u{fe0f}\u{20e3}", "1\u{fe0f}\u{20e3}"),
        ("\u{1f468}\u{200d}\u{1f4bb}", "\u{1f468}\u{200d}\u{1f4bb}"),
        ("docs/\u{2699}\u{fe0f} setup", "docs/\u{2699}\u{fe0f} setup"),
    ] {
        assert_eq!(claim(raw).as_str(), canonical, "{raw:?}");
    }
}

#[test]
fn what_cannot_be_claimed_is_refused() {
    for (raw, error) in [
        ("", ClaimError::Empty),
        ("/", ClaimError::Outside),
        ("/etc/passwd", ClaimError::Outside),
        ("..", ClaimError::Outside),
        ("../other", ClaimError::Outside),
        ("src/../../x", ClaimError::Outside),
        ("~", ClaimError::Home),
        ("~/x", ClaimError::Home),
        ("./~/x", ClaimError::Home),
        ("src/*.rs", ClaimError::Pattern),
        ("**/src", ClaimError::Pattern),
        ("src/**/..", ClaimError::Pattern),
        ("src/**/**", ClaimError::Pattern),
        ("src**", ClaimError::Pattern),
        ("a?", ClaimError::Pattern),
        ("src/{a,b}.rs", ClaimError::Pattern),
        (" src/a.rs", ClaimError::Blank),
        ("./ src", ClaimError::Blank),
        ("src ", ClaimError::Blank),
        ("src /", ClaimError::Blank),
        ("src/a.rs\0", ClaimError::Hidden),
        ("a\nb", ClaimError::Hidden),
        ("a\u{202e}b", ClaimError::Hidden),
        ("a\u{2028}b", ClaimError::Hidden),
        ("sr\u{200d}c", ClaimError::Hidden),
        ("src\u{fe0f}", ClaimError::Hidden),
        ("src/\u{200d}a", ClaimError::Hidden),
    ] {
        assert_eq!(Claim::parse(raw), Err(error), "{raw:?}");
    }
    let long = "x".repeat(CLAIM_BYTES_MAX + 1);
    let bytes = CLAIM_BYTES_MAX + 1;
    let refused = ClaimError::TooLong {
        bytes,
        bytes_max: CLAIM_BYTES_MAX,
    };
    assert_eq!(Claim::parse(&long), Err(refused));
    assert!(Claim::parse(&long[1..]).is_ok());
}

#[test]
fn claims_are_bounded_and_hold_nothing_twice() {
    let paths = ["src", "./src/", "docs", "src/a.rs"];
    let claims = Claims::parse(&paths).unwrap();
    let kept: Vec<&str> = claims.as_slice().iter().map(Claim::as_str).collect();
    assert_eq!(kept, ["src", "docs", "src/a.rs"]);

    let many: Vec<String> = (0..=CLAIMS_MAX)
        .map(|number| format!("d{number}/f"))
        .collect();
    assert_eq!(
        Claims::parse(&many),
        Err(ClaimsError::TooMany {
            claims_max: CLAIMS_MAX
        })
    );
    assert!(Claims::parse(&many[1..]).is_ok());

    let long: Vec<String> = (0..4)
        .map(|number| format!("{number}{}", "x".repeat(900)))
        .collect();
    assert_eq!(
        Claims::parse(&long),
        Err(ClaimsError::TooLong {
            bytes_max: CLAIMS_BYTES_MAX
        })
    );

    let refused = Claims::parse(&["ok", "../\u{1b}[31mx"]).unwrap_err();
    assert_eq!(refused.to_string(), "\"../x\" cannot be claimed");
}

#[test]
fn claims_meet_by_whole_names() {
    let meeting = |mine: &str, all: &[&str]| -> Vec<String> {
        let met = all
            .iter()
            .filter(|other| meets(&claim(mine), &claim(other), Case::Kept));
        met.map(|other| (*other).to_owned()).collect()
    };
    let near = [
        "app",
        "apps",
        "app-old",
        "app.bak",
        "application",
        "app/x",
        "app/x/y",
        "ap",
        "lib/app",
    ];
    assert_eq!(meeting("app", &near), ["app", "app/x", "app/x/y"]);
    let near = ["src/main.rs", "src/main/x", "src", "src/mainframe"];
    assert_eq!(meeting("src/main", &near), ["src/main/x", "src"]);
    assert_eq!(meeting(".", &near), near);
}

#[test]
fn case_folds_when_either_side_ignores_it() {
    for (a, b, folded) in [
        ("Src", "src/a", true),
        ("STRASSE", "straße", true),
        ("ΟΔΟΣ", "οδος", true),
        ("E\u{301}", "é", true),
        ("apps", "APP", false),
    ] {
        assert!(!meets(&claim(a), &claim(b), Case::Kept), "{a} {b}");
        assert_eq!(meets(&claim(a), &claim(b), Case::Folded), folded, "{a} {b}");
    }
    assert_eq!(Case::Kept.and(Case::Folded), Case::Folded);
    assert_eq!(Case::Kept.and(Case::Kept), Case::Kept);
}

#[test]
fn pairs_past_the_bound_are_counted() {
    let paths: Vec<String> = (0..CLAIMS_MAX).map(|number| format!("d{number}")).collect();
    let (mine, theirs) = (
        Claims::parse(&paths).unwrap(),
        Claims::parse(&["."]).unwrap(),
    );
    let found = pairs(&mine, &theirs, Case::Kept);
    assert_eq!((found.pairs.len(), found.more), (32, 32));
    assert_eq!(found.pairs[0], (claim("d0"), claim(".")));
}

/// The definition, by components.
fn naive_meets(a: &Claim, b: &Claim) -> bool {
    a.components()
        .zip(b.components())
        .all(|(one, other)| one == other)
}

fn some_path() -> impl Strategy<Value = String> {
    let names = vec!["a", "b", "ab", "a.b", "a-b", "..", ".", "", "**", "é", "A"];
    prop::collection::vec(prop::sample::select(names), 1..6).prop_map(|names| names.join("/"))
}

fn some_claims() -> impl Strategy<Value = Claims> {
    prop::collection::vec(some_path(), 0..5).prop_map(|paths| {
        let good: Vec<String> = paths
            .into_iter()
            .filter(|it| Claim::parse(it).is_ok())
            .collect();
        Claims::parse(&good).unwrap()
    })
}

proptest! {
    #[test]
    fn a_claim_parses_to_itself(raw in prop_oneof![any::<String>(), some_path()]) {
        if let Ok(claim) = Claim::parse(&raw) {
            prop_assert_eq!(Claim::parse(claim.as_str()), Ok(claim.clone()));
            prop_assert!(claim.as_str().len() <= CLAIM_BYTES_MAX);
        }
    }

    #[test]
    fn meeting_is_the_naive_definition(a in some_path(), b in some_path()) {
        if let (Ok(a), Ok(b)) = (Claim::parse(&a), Claim::parse(&b)) {
            prop_assert_eq!(meets(&a, &b, Case::Kept), naive_meets(&a, &b));
            prop_assert_eq!(meets(&b, &a, Case::Kept), naive_meets(&a, &b));
        }
    }

    #[test]
    fn the_index_finds_what_comparing_all_finds(
        all in prop::collection::vec(some_claims(), 0..12),
        gone in prop::collection::vec(any::<bool>(), 12),
        asked in some_claims(),
        fold in any::<bool>(),
    ) {
        let case = if fold { Case::Folded } else { Case::Kept };
        let mut index = ClaimIndex::new(case);
        for (owner, claims) in all.iter().enumerate() {
            index.insert(owner, claims);
        }
        for (owner, claims) in all.iter().enumerate().filter(|(owner, _)| gone[*owner]) {
            index.remove(owner, claims);
        }
        let left = (0..all.len()).filter(|owner| !gone[*owner]);
        let met: BTreeSet<usize> =
            left.filter(|owner| !pairs(&asked, &all[*owner], case).pairs.is_empty()).collect();
        prop_assert_eq!(index.owners_meeting(&asked), met);
    }
}
