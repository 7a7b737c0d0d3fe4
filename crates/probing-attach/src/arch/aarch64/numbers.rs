//! Numbers of system calls, spelled out so that everything here can be tested on another machine.

macro_rules! numbers {
    ($($name:ident = $number:literal, $theirs:ident;)*) => {
        $(
            pub(super) const $name: i64 = $number;
            #[cfg(target_arch = "aarch64")]
            const _: () = assert!($name == libc::$theirs);
        )*
    };
}

numbers! {
    EPOLL_PWAIT = 22, SYS_epoll_pwait;
    FCNTL = 25, SYS_fcntl;
    FLOCK = 32, SYS_flock;
    READ = 63, SYS_read;
    WRITE = 64, SYS_write;
    PSELECT6 = 72, SYS_pselect6;
    PPOLL = 73, SYS_ppoll;
    WAITID = 95, SYS_waitid;
    FUTEX = 98, SYS_futex;
    NANOSLEEP = 101, SYS_nanosleep;
    CLOCK_GETTIME = 113, SYS_clock_gettime;
    GETTID = 178, SYS_gettid;
    CLOCK_NANOSLEEP = 115, SYS_clock_nanosleep;
    RESTART = 128, SYS_restart_syscall;
    SIGPENDING = 136, SYS_rt_sigpending;
    SIGTIMEDWAIT = 137, SYS_rt_sigtimedwait;
    SIGRETURN = 139, SYS_rt_sigreturn;
    ACCEPT = 202, SYS_accept;
    CONNECT = 203, SYS_connect;
    SENDTO = 206, SYS_sendto;
    RECVFROM = 207, SYS_recvfrom;
    SENDMSG = 211, SYS_sendmsg;
    RECVMSG = 212, SYS_recvmsg;
    MUNMAP = 215, SYS_munmap;
    MMAP = 222, SYS_mmap;
    MPROTECT = 226, SYS_mprotect;
    ACCEPT4 = 242, SYS_accept4;
    WAIT4 = 260, SYS_wait4;
    EPOLL_PWAIT2 = 441, SYS_epoll_pwait2;
    FUTEX_WAITV = 449, SYS_futex_waitv;
}
