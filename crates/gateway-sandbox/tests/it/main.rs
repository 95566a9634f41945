//! smoke
use gateway_sandbox::*;
fn main() -> std::process::ExitCode {
    if std::env::args().nth(1).as_deref() == Some("__sandbox") { return helper_main(); }
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        let t = std::time::Instant::now();
        let s = Sandbox::probe(SandboxOptions { enforce: true, helper: std::env::current_exe().unwrap(), readable: vec![], home: "/root".into() }).await;
        println!("{:?} {:?}", s.state(), t.elapsed());
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run_1"); std::fs::create_dir(&run).unwrap();
        let c = Confinement { run: Some(RunDirectory { host: run.clone(), run_id: "run_1".parse().unwrap(), writable: true }), workspaces: vec![], limits: Limits{ wall: std::time::Duration::from_secs(20), ..Limits::default()} };
        for cmd in ["id; ls -la / /etc /dev; pwd; echo hi > x; ls -la; cat /proc/self/mounts | head -50; ps aux; ulimit -a; env", "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs,[1,-2]))'", "cat < /dev/zero | head -c 20000000 | wc -c", "sleep 100"] {
            let p = Program { path: "/bin/bash".into(), digest: None, args: vec!["-c".into(), cmd.into()], stdin: b"hello".to_vec(), env: [("PATH".to_string(), "/usr/bin:/bin".to_string())].into(), cwd: "/.allternit/artifacts/run_1".into() };
            let mut c = c.clone(); if cmd == "sleep 100" { c.limits.wall = std::time::Duration::from_millis(300); }
            let t = std::time::Instant::now();
            match s.run(&p, &c, &Default::default()).await { Ok(f) => println!("{:?} {:?} {:?}\n{}\nERR {}\n{:?}", f.exit, f.stopped_by, t.elapsed(), String::from_utf8_lossy(&f.stdout.bytes), String::from_utf8_lossy(&f.stderr.bytes), f.usage), Err(e) => println!("{e}") }
        }
        let p = Program { path: "/bin/true".into(), digest: None, args: vec![], stdin: vec![], env: Default::default(), cwd: "/".into() };
        let t = std::time::Instant::now();
        for _ in 0..50 { s.run(&p, &c, &Default::default()).await.unwrap(); }
        println!("true: {:?}", t.elapsed()/50);
    });
    std::process::ExitCode::SUCCESS
}
