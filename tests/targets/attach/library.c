/* What targets call to notice harm. Built by the tests: cc -O1 -mno-red-zone -shared -fPIC -pthread. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
/* Fills vector registers, callee-saved registers, x87 stack, control words, flags and the red zone (which the compiler
   does not use here), spins or sleeps by instructions that leave them alone, and compares. 0: nothing changed. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define UPPER(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define MASKS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define LOAD(n) "vmovdqu " #n "*32(%%r8), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", " #n "*32(%%r9)\n"
#define LOAD_WIDE(n) "vmovdqu64 " #n "*64(%%r8), %%zmm" #n "\n"
#define STORE_WIDE(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%%r9)\n"
#define LOAD_MASK(n) "kmovw 2048+8*" #n "(%%r8), %%k" #n "\n"
#define STORE_MASK(n) "kmovw %%k" #n ", 2048+8*" #n "(%%r9)\n"
#define PUT(n) "movq $0x5a5a" #n ", -8-8*" #n "(%%rsp)\n"
#define GET(n) "movq -8-8*" #n "(%%rsp), %%rax\n movq %%rax, 8*" #n "(%%r12)\n"

enum { FLAGS = 0xcd5 /* carry, parity, adjust, zero, sign, overflow, and down */, FLOATS = 0x7fa0, X87 = 0x0f7f };
static unsigned char want[2112], got[2112];
static unsigned long zone[16];
static struct { unsigned long flags; unsigned floats; unsigned short x87; long double top, next; } seen_state;

#define CANARY(name, LOADS, STORES)                                                                              \
    static long name(long sleeping) {                                                                            \
        struct timespec nap = {0, 3000000};                                                                      \
        unsigned floats = FLOATS, old_floats;                                                                    \
        unsigned short x87 = X87, old_x87;                                                                       \
        asm volatile("stmxcsr %0\n fnstcw %1\n ldmxcsr %2\n fninit\n fldpi\n fldl2e\n fldcw %3\n"                \
                     : "=m"(old_floats), "=m"(old_x87) : "m"(floats), "m"(x87));                                 \
        register unsigned char *w asm("r8") = want, *g asm("r9") = got;                                          \
        register unsigned long *z asm("r12") = zone;                                                             \
        register struct timespec *t asm("rdi") = &nap;                                                           \
        register long s asm("rcx") = sleeping;                                                                   \
        register long r asm("r14") = 0, x asm("r15") = 0x1234567;                                                \
        register void *state asm("r13") = &seen_state;                                                           \
        asm volatile(LOADS "xor %%esi, %%esi\n pushq %[flags]\n popfq\n" EACH(PUT)                               \
            "jrcxz 1f\n mov $35, %%eax\n syscall\n mov %%rax, %%r14\n jmp 3f\n"                                   \
            "1: mov $2000000, %%ecx\n 2: lea -1(%%rcx), %%rcx\n jrcxz 3f\n jmp 2b\n"                             \
            "3: \n" EACH(GET) "pushfq\n popq (%%r13)\n cld\n" STORES                                             \
            "stmxcsr 8(%%r13)\n fnstcw 12(%%r13)\n fstpt 16(%%r13)\n fstpt 32(%%r13)\n"                          \
            : "+r"(r), "+r"(x), "+r"(w), "+r"(g), "+r"(z), "+r"(t), "+r"(s), "+r"(state)                         \
            : [flags] "i"(FLAGS | 2)                                                                             \
            : "rax", "rdx", "rsi", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", \
              "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");             \
        asm volatile("fninit\n fldcw %1\n ldmxcsr %0\n" : : "m"(old_floats), "m"(old_x87));                      \
        return r != 0 || x != 0x1234567;                                                                         \
    }
CANARY(canary_ymm, EACH(LOAD), EACH(STORE) "vzeroupper\n")
CANARY(canary_zmm, EACH(LOAD_WIDE) UPPER(LOAD_WIDE) MASKS(LOAD_MASK),
       EACH(STORE_WIDE) UPPER(STORE_WIDE) MASKS(STORE_MASK) "vzeroupper\n")

/* How many bytes of vector registers a round compares: 0 where there is no AVX. */
int canary_width(void) { return __builtin_cpu_supports("avx512f") ? 2112 : __builtin_cpu_supports("avx") ? 512 : 0; }

/* 0, or a bit for each thing that changed. */
int canary(int sleeping) {
    static const unsigned long marks[16] = {0x5a5a0, 0x5a5a1, 0x5a5a2,  0x5a5a3,  0x5a5a4,  0x5a5a5,  0x5a5a6,  0x5a5a7,
                                            0x5a5a8, 0x5a5a9, 0x5a5a10, 0x5a5a11, 0x5a5a12, 0x5a5a13, 0x5a5a14, 0x5a5a15};
    int width = canary_width();
    if (!width) return 0;
    for (int i = 0; i < width; i++) want[i] = (unsigned char)(i * 7 + 3);
    for (int i = 0; i < 8; i++) memset(want + 2048 + 8 * i + 2, 0, 6); /* masks have 16 bits */
    memset(want + 2048, 0, 8);                                         /* k0 is not used */
    memset(got, 0, sizeof got);
    int hurt = (width == 2112 ? canary_zmm(sleeping) : canary_ymm(sleeping)) != 0;
    hurt |= (memcmp(want, got, width) != 0) << 1;
    hurt |= (memcmp(marks, zone, sizeof marks) != 0) << 2;
    hurt |= ((seen_state.flags & FLAGS) != FLAGS) << 3;
    hurt |= (seen_state.floats != FLOATS) << 4;
    hurt |= (seen_state.x87 != X87) << 5;
    hurt |= (seen_state.top != 1.442695040888963407359924681001892137L) << 6;
    hurt |= (seen_state.next != 3.141592653589793238462643383279502884L) << 7;
    return hurt;
}
#else
int canary_width(void) { return 0; }
int canary(int sleeping) { (void)sleeping; return 0; }
#endif

/* What the kernel and libc keep for this thread: alternate signal stack, list of robust mutexes, signal mask, errno.
   Spins or sleeps, and compares. NULL: nothing changed. */
static char alternate[65536];
static volatile int handled_at_home;
static void handle_at_home(int number) {
    char here;
    (void)number;
    handled_at_home = &here > alternate && &here < alternate + sizeof alternate;
}
static long robust_list(size_t *size) {
    void *head = NULL;
    syscall(SYS_get_robust_list, 0, &head, size);
    return (long)head;
}
const char *surroundings(int sleeping) {
    stack_t set = {.ss_sp = alternate, .ss_size = sizeof alternate}, old, now;
    struct sigaction action = {.sa_handler = handle_at_home, .sa_flags = SA_ONSTACK};
    struct timespec nap = {0, 3000000};
    sigset_t blocked, mask;
    size_t size, size_now;
    sigaltstack(&set, &old);
    sigaction(SIGUSR2, &action, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    long list = robust_list(&size);
    errno = 12345;
    if (sleeping)
        for (int i = 0; i < 3; i++) asm volatile("syscall" : : "a"(SYS_nanosleep), "D"(&nap), "S"(0) : "rcx", "r11", "memory");
    else
        for (volatile int i = 0; i < 2000000; i++) {}
    int error = errno;
    handled_at_home = 0;
    raise(SIGUSR2);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    long list_now = robust_list(&size_now);
    sigaltstack(&old, &now);
    return error != 12345                                                ? "errno"
           : !handled_at_home                                            ? "a handler on the alternate stack"
           : now.ss_sp != alternate || now.ss_size != sizeof alternate || now.ss_flags ? "alternate stack"
           : memcmp(&blocked, &mask, 8)                                  ? "signal mask"
           : list != list_now || size != size_now                        ? "robust list"
                                                                         : NULL;
}

static pthread_mutex_t robust;
static pthread_t owner;
static volatile int owned, released;
static void *own(void *unused) {
    struct timespec nap = {0, 5000000};
    pthread_mutex_lock(&robust);
    owned = 1;
    while (!released) nanosleep(&nap, NULL);
    return unused; /* still locked */
}
void own_robust_mutex(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kind);
    pthread_create(&owner, NULL, own, NULL);
    while (!owned) sched_yield();
}
int next_owner(void) {
    released = 1;
    pthread_join(owner, NULL);
    return pthread_mutex_lock(&robust);
}

/* Until a byte comes. The child has no other way to wait that leaves its parent's memory alone. */
void wait_in_vfork(void) {
    static char byte;
    if (vfork() == 0) {
        while (read(0, &byte, 1) < 0) {}
        _exit(0);
    }
}
static volatile int spinning;
int is_spinning(void) { return spinning; }
void spin_until_input(void) {
    spinning = 1;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (unsigned i = 1; i % 1000000 || poll(&input, 1, 0) == 0; i++) asm volatile("");
}
void spin_then_read(const volatile int *word) {
    char byte;
    while (!*word) {}
    while (read(0, &byte, 1) < 0) {}
}
int nothing(void *unused) { (void)unused; return 0; }

static struct timespec after(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ms * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Waits once; 0, or the errno that a wait should not have. errno itself must survive. */
int wait_once(const char *kind, int fd, int ms) {
    int result = 0, expected = 0;
    errno = 0;
    if (!strcmp(kind, "epoll_wait")) {
        int e = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event;
        result = epoll_wait(e, &event, 1, ms);
        int saved = errno;
        close(e);
        errno = saved;
    } else if (!strcmp(kind, "epoll_pwait2")) {
        int e = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event event;
        struct timespec t = {0, ms * 1000000L};
        result = syscall(SYS_epoll_pwait2, e, &event, 1, &t, NULL, 8);
        int saved = errno;
        close(e);
        errno = saved;
    } else if (!strcmp(kind, "recv")) {
        int pair[2];
        struct timeval t = {0, ms * 1000L};
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        char byte;
        result = recv(pair[0], &byte, 1, 0);
        expected = EAGAIN;
        int saved = errno;
        close(pair[0]);
        close(pair[1]);
        errno = saved;
    } else if (!strcmp(kind, "sigwaitinfo")) {
        sigset_t alarms;
        sigemptyset(&alarms);
        sigaddset(&alarms, SIGALRM);
        sigprocmask(SIG_BLOCK, &alarms, NULL);
        struct itimerval t = {.it_value = {0, ms * 1000L}};
        setitimer(ITIMER_REAL, &t, NULL);
        result = sigwaitinfo(&alarms, NULL) == SIGALRM ? 0 : -1;
    } else if (!strcmp(kind, "poll")) {
        result = poll(NULL, 0, ms);
    } else if (!strcmp(kind, "nanosleep")) {
        struct timespec t = {0, ms * 1000000L};
        result = nanosleep(&t, NULL);
    } else if (!strcmp(kind, "read")) {
        char byte;
        result = read(fd, &byte, 1) == 1 ? 0 : -1;
    } else if (!strcmp(kind, "sem_timedwait")) {
        sem_t sem;
        sem_init(&sem, 0, 0);
        struct timespec t = after(ms);
        result = sem_timedwait(&sem, &t);
        expected = ETIMEDOUT;
    } else if (!strcmp(kind, "accept")) {
        int peer = accept(fd, NULL, NULL);
        result = peer < 0 ? -1 : 0;
        if (peer >= 0) close(peer);
    }
    if (result == -1 && errno != expected) return errno ? errno : EIO;
    return errno == expected ? 0 : errno;
}

volatile int signals_seen;
static void seen(int number) { (void)number; __atomic_add_fetch(&signals_seen, 1, __ATOMIC_SEQ_CST); }
void count_signals(void) {
    struct sigaction action = {.sa_handler = seen, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
}
int signal_count(void) { return signals_seen; }

static void *churn(void *unused) {
    void *kept[64] = {0};
    for (unsigned i = 0;; i++) {
        free(kept[i % 64]);
        kept[i % 64] = malloc(24 + i * 37 % 5000);
    }
    return unused;
}
void storm(int threads) {
    pthread_t thread;
    while (threads--) pthread_create(&thread, NULL, churn, NULL);
}
