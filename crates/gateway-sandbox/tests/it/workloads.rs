//! Work that a sandbox must not get in the way of.

use gateway_sandbox::Exit;

use crate::harness::cases;
use crate::place::{Place, RUN, describe, python, stdout};

cases![shell_work_is_done, python_work_is_done, standard_streams_can_be_opened_by_name];

/// Lines of bash, and what each prints.
const SHELL: &[(&str, &str)] = &[
    ("cat <(echo one) <(echo two)", "one\ntwo\n"),
    ("f=$(mktemp) && echo x > $f && cat $f && rm $f", "x\n"),
    ("head -c 9 /dev/urandom | wc -c; echo lost > /dev/null; cat /dev/null", "9\n"),
    (
        "git init -q repo && cd repo && echo a > f && git add f && \
         git -c user.name=n -c user.email=e commit -qm first && git log --format=%s && git status --short",
        "first\n",
    ),
    (
        "mkdir t && echo a > t/f && chmod 750 t/f && tar czf t.tgz t && rm -r t && tar xzf t.tgz && stat -c %a t/f",
        "750\n",
    ),
    (
        "printf '#include <stdio.h>\\nint main(void){puts(\"built\");}' > m.c && gcc m.c -o m && ./m",
        "built\n",
    ),
    ("printf '#!/bin/sh\\necho script $1' > s && chmod +x s && ./s a", "script a\n"),
    ("mkdir d1 d2; echo a > d1/f; mv d1/f d2/g; ln d2/g h; ln -s h l; cat l", "a\n"),
    ("yes | head -1; echo ${PIPESTATUS[0]}", "y\n141\n"),
    (
        "id -un; hostname; getent hosts localhost | head -1 | tr -s ' '",
        "sandbox\nsandbox\n::1 localhost\n",
    ),
    ("pwd; cd /tmp && ls -A; ls -A /dev/shm", "/.allternit/artifacts/run_1\n"),
    ("cat /proc/self/maps | wc -l | grep -qv '^0$' && echo maps", "maps\n"),
    ("find / -xdev -maxdepth 1 | sort | grep -c .", ""),
];

/// A memory limit, as every shell has one, takes calls away.
async fn limited() -> Place {
    let mut place = Place::new().await;
    place.confinement.limits.memory_bytes = Some(4 << 30);
    place
}

async fn shell_work_is_done() {
    for (line, expected) in SHELL {
        let place = limited().await;
        let printed = place.succeeds(line).await;
        assert!(expected.is_empty() || printed == *expected, "{line} printed {printed:?}");
    }
}

const PYTHON: &[(&str, &str)] = &[
    ("socket pair", "import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))"),
    (
        "threads",
        "import threading as t\nx = t.Thread(target=print, args=('ok',))\nx.start()\nx.join()",
    ),
    (
        "asyncio across threads",
        "import asyncio, threading\nasync def main():\n loop = asyncio.get_running_loop()\n f = loop.create_future()\n \
         threading.Thread(target=lambda: loop.call_soon_threadsafe(f.set_result, 'ok')).start()\n \
         print(await asyncio.wait_for(f, 20))\nasyncio.run(main())",
    ),
    (
        "asyncio subprocess",
        "import asyncio\nasync def main():\n p = await asyncio.create_subprocess_exec('echo', 'ok', stdout=-1)\n \
         print((await p.communicate())[0])\nasyncio.run(main())",
    ),
    (
        "fork pool",
        "import multiprocessing as m\nprint(m.get_context('fork').Pool(2).map(abs, [-1, -2]))",
    ),
    (
        "forkserver pool",
        "import multiprocessing as m\nif __name__ == '__main__':\n print(m.get_context('forkserver').Pool(2).map(abs, [-1, -2]))",
    ),
    (
        "sqlite",
        "import sqlite3\nc = sqlite3.connect('d.db')\nc.execute('pragma journal_mode=wal')\nc.execute('create table t(a)')\n\
         c.execute('insert into t values (1)')\nc.commit()\nprint(c.execute('select * from t').fetchall())",
    ),
    ("named semaphore", "import multiprocessing as m\nwith m.Semaphore(1): print('ok')"),
    (
        "a local server",
        "import socket, threading\ns = socket.socket(socket.AF_UNIX)\ns.bind('s')\ns.listen()\n\
         threading.Thread(target=lambda: s.accept()[0].send(b'hi')).start()\n\
         c = socket.socket(socket.AF_UNIX)\nc.connect('s')\nprint(c.recv(2))",
    ),
    (
        "own limits",
        "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (64, 64))\nprint(r.getrlimit(r.RLIMIT_NOFILE))",
    ),
    (
        "shared memory",
        "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=9)\nm.unlink()\nprint('ok')",
    ),
];

async fn python_work_is_done() {
    for (name, code) in PYTHON {
        let place = limited().await;
        // A pool that starts anew imports the program's file.
        crate::place::put(&place.run_directory().join("main.py"), code);
        let mut program = python("");
        program.args = vec![format!("{RUN}/main.py").into()];
        let finished = place.run(&program).await;
        assert_eq!(finished.exit, Exit::Code(0), "{name}: {}", describe(&finished));
        assert!(!stdout(&finished).is_empty(), "{name}: {}", describe(&finished));
    }
}

async fn standard_streams_can_be_opened_by_name() {
    let place = Place::new().await;
    let mut program = crate::place::bash(
        "cat /dev/stdin > /dev/stdout; python3 -c \"open('/dev/stderr','w').write('e')\"",
    );
    program.stdin = b"in".to_vec();
    let finished = place.run(&program).await;
    assert_eq!(
        (stdout(&finished).as_str(), &*finished.stderr.bytes),
        ("in", &b"e"[..]),
        "{}",
        describe(&finished)
    );
}
