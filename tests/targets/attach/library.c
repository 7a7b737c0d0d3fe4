/* What targets call to notice harm. Built by the tests: cc -O1 -mno-red-zone -shared -fPIC -pthread. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
/* Fills vector registers, callee-saved registers and the red zone (which the compiler does not use here), spins
   or sleeps, and compares. 0: nothing changed. */
int canary(int sleeping) {
    static unsigned char want[512], got[512];
    static unsigned long zone[16];
    struct timespec ts = {0, 3000000};
    long result = 0, sum = 0;
    int avx = __builtin_cpu_supports("avx"), hurt = 0;
    for (int i = 0; i < 512; i++) want[i] = (unsigned char)(i * 7 + 3);
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD(n) "vmovdqu " #n "*32(%%r8), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", " #n "*32(%%r9)\n"
#define PUT(n) "movq $0x5a5a" #n ", -8-8*" #n "(%%rsp)\n"
#define GET(n) "movq -8-8*" #n "(%%rsp), %%rax\n movq %%rax, 8*" #n "(%%r12)\n"
    if (!avx) return 0;
    register unsigned char *w asm("r8") = want, *g asm("r9") = got;
    register unsigned long *z asm("r12") = zone;
    register struct timespec *t asm("rdi") = &ts;
    register long s asm("r13") = sleeping;
    register long r asm("r14") = 0, x asm("r15") = 0x1234567;
    asm volatile(
        EACH(LOAD) EACH(PUT)
        "test %%r13, %%r13\n jz 1f\n"
        "xor %%esi, %%esi\n mov $35, %%eax\n syscall\n mov %%rax, %%r14\n jmp 3f\n"
        "1: mov $2000000, %%ecx\n 2: dec %%ecx\n jnz 2b\n"
        "3: \n" EACH(STORE) EACH(GET)
        : "+r"(r), "+r"(x), "+r"(w), "+r"(g), "+r"(z), "+r"(t), "+r"(s)
        :
        : "rax", "rcx", "rdx", "rsi", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    result = r;
    sum = x;
    unsigned long marks[16] = {0x5a5a0, 0x5a5a1, 0x5a5a2, 0x5a5a3, 0x5a5a4, 0x5a5a5, 0x5a5a6, 0x5a5a7, 0x5a5a8, 0x5a5a9,
                               0x5a5a10, 0x5a5a11, 0x5a5a12, 0x5a5a13, 0x5a5a14, 0x5a5a15};
    hurt |= memcmp(want, got, 512) != 0;
    hurt |= memcmp(marks, zone, sizeof marks) != 0;
    hurt |= result != 0 || sum != 0x1234567;
    return hurt;
}
#else
int canary(int sleeping) { (void)sleeping; return 0; }
#endif

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
