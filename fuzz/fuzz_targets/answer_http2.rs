#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redeliver_tests::answer_http2(data));
