/* A model's endpoint that costs next to nothing, and the readers of what a server makes of it, in one process.
 *
 * `tokens UPSTREAM_PORT STREAMS RATE SECONDS` answers chat completions at that port, each with RATE tokens a second, for
 * SECONDS. Once a line with a port and a path stands on its standard input, it opens STREAMS streams of an A2A server
 * there, and reads all of them. Every token holds when it was sent and its number, so that a lost, doubled, swapped or
 * late one is found. `open` is printed once every stream has a token; at the end a line of JSON. One thread, epoll. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LATE_MAX_US 20000000
#define BUCKET_US 100
#define SETTLED_US 500000
#define OPEN_US 4000 /* between two streams that are opened */
#define BUCKETS (LATE_MAX_US / BUCKET_US + 1)

enum kind { LISTENER, GIVER, READER };
struct conn { enum kind kind; int fd, streaming, ended; unsigned next; long long due; char *in; size_t len, cap; struct conn *after; };

static int queue_fd, streams, rate, seconds, began, finished, first_tokens;
static struct conn *first, *last; /* those that give, by when the next token is due */
static unsigned long sent, got, timed, chunks, wrong, late_sends;
static unsigned buckets[BUCKETS];
static long long worst, opened; /* tokens are timed from a while after all streams are there until one ends */
static unsigned long timed;

static long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void fail(const char *what) { perror(what); exit(1); }

static void watch(struct conn *c) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(queue_fd, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl");
}

static void put(struct conn *c, const char *bytes, size_t len) {
    if (send(c->fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len) c->ended = 1; /* whoever does not read is not worth it */
}

static void later(struct conn *c) {
    c->after = NULL;
    if (last) last->after = c; else first = c;
    last = c;
}

static void token(struct conn *c, long long now) {
    char event[512], chunk[600];
    static const char *head = "data: {\"id\":\"chatcmpl-ArXp7aXkbV0uPqz5yXn3sQmTtGvW1\",\"object\":\"chat.completion.chunk\",\"created\":1735689600,\"model\":\"small-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0aa8d3e20b\",\"choices\":[{\"index\":0,\"delta\":";
    int len;
    if (c->next < (unsigned)(rate * seconds))
        len = snprintf(event, sizeof event, "%s{\"content\":\"~%012lld.%05u \"},\"logprobs\":null,\"finish_reason\":null}]}\n\n", head, now, c->next);
    else
        len = snprintf(event, sizeof event, "%s{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", head, rate * seconds, rate * seconds + 9);
    len = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n%s", len, event, c->next < (unsigned)(rate * seconds) ? "" : "0\r\n\r\n");
    put(c, chunk, len);
    if (c->next++ < (unsigned)(rate * seconds)) {
        sent++;
        if (now > c->due + 10000) late_sends++;
        c->due += 1000000 / rate;
        if (!c->ended) later(c);
    } else
        c->streaming = 0;
}

static void asked(struct conn *c) {
    char *end = memmem(c->in, c->len, "\r\n\r\n", 4), *length;
    if (!end || c->streaming) return;
    *end = 0;
    length = strcasestr(c->in, "content-length:");
    size_t body = length ? strtoul(length + 15, NULL, 10) : 0, whole = end + 4 - c->in + body;
    *end = '\r';
    if (c->len < whole) return;
    memmove(c->in, c->in + whole, c->len -= whole);
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    put(c, head, sizeof head - 1);
    c->streaming = 1;
    c->next = 0;
    c->due = now_us() + 1000000 / rate;
    later(c);
}

static void line(struct conn *c, char *s, size_t len) {
    char *end = s + len;
    if (memmem(s, len, "artifactUpdate", 14)) {
        long long now = now_us();
        chunks++;
        for (; (s = memchr(s, '~', end - s)); s++) {
            long long at = atoll(s + 1), late = now - at;
            if (strtoul(s + 14, NULL, 10) != c->next++) wrong++;
            if (c->next == 1 && ++first_tokens == streams) { puts("open"); fflush(stdout); opened = now; }
            got++;
            if (!opened || now < opened + SETTLED_US || finished) continue;
            timed++;
            if (late > worst) worst = late;
            buckets[(late < 0 ? 0 : late > LATE_MAX_US ? LATE_MAX_US : late) / BUCKET_US]++;
        }
    } else if (memmem(s, len, "TASK_STATE_COMPLETED", 20)) {
        if (c->next != (unsigned)(rate * seconds)) wrong++;
        c->ended = 1;
        finished++;
    } else if (memmem(s, len, "TASK_STATE_FAILED", 17) || memmem(s, len, "\"error\"", 7)) {
        fprintf(stderr, "%.*s\n", (int)(len > 300 ? 300 : len), s);
        exit(1);
    }
}

static void readable(struct conn *c) {
    if (c->cap - c->len < 65536) c->in = realloc(c->in, c->cap = c->cap * 2 + 65536);
    ssize_t n = recv(c->fd, c->in + c->len, c->cap - c->len - 1, 0);
    if (n <= 0) {
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (c->kind == READER && !c->ended) wrong++;
        epoll_ctl(queue_fd, EPOLL_CTL_DEL, c->fd, NULL);
        close(c->fd);
        c->ended = 1;
        return;
    }
    c->len += n;
    c->in[c->len] = 0;
    if (c->kind == GIVER) { asked(c); return; }
    char *s = c->in, *end = c->in + c->len, *stop;
    for (; (stop = memchr(s, '\n', end - s)); s = stop + 1) { *stop = 0; line(c, s, stop - s); }
    memmove(c->in, s, c->len = end - s);
}

static struct conn *made(enum kind kind, int fd) {
    struct conn *c = calloc(1, sizeof *c);
    int on = 1;
    c->kind = kind;
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(c);
    return c;
}

static void open_one(int port, const char *path) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char body[512], request[1024];
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    int len = snprintf(body, sizeof body, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"SendStreamingMessage\",\"params\":{\"message\":{\"messageId\":\"%08x-0000-4000-8000-%012d\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"Tell me a long story.\"}]}}}", began, (unsigned)getpid(), began);
    len = snprintf(request, sizeof request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", path, len, body);
    struct conn *c = made(READER, fd);
    put(c, request, len);
    began++;
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double share_us(double share) {
    unsigned long seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += buckets[i]) >= share * timed) return (double)i * BUCKET_US;
    return LATE_MAX_US;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    signal(SIGPIPE, SIG_IGN);
    streams = atoi(argv[2]), rate = atoi(argv[3]), seconds = atoi(argv[4]);
    queue_fd = epoll_create1(0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1, port = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4096)) fail("listen");
    struct conn *listener = made(LISTENER, fd), *input = calloc(1, sizeof *input);
    char path[256] = "", command[300] = "";
    input->fd = 0;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = input}, events[512];
    epoll_ctl(queue_fd, EPOLL_CTL_ADD, 0, &e);
    long long start = 0, until = 0;
    double cpu = 0;
    while (finished < streams && (!until || now_us() < until)) {
        long long now = now_us();
        while (first && first->due <= now) {
            struct conn *c = first;
            if (!(first = c->after)) last = NULL;
            token(c, now_us());
        }
        if (port && began < streams && now >= start + began * (long long)OPEN_US) { open_one(port, path); continue; }
        long long due = first ? first->due : now + 100000;
        if (port && began < streams && start + began * (long long)OPEN_US < due) due = start + began * (long long)OPEN_US;
        struct timespec wait = {0, due > now ? (due - now) * 1000 : 0};
        int n = epoll_pwait2(queue_fd, events, 512, &wait, NULL);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c == input) {
                ssize_t len = read(0, command, sizeof command - 1);
                if (len <= 0) return 1;
                epoll_ctl(queue_fd, EPOLL_CTL_DEL, 0, NULL);
                if (sscanf(command, "%d %255s", &port, path) != 2) return 2;
                start = now_us(), cpu = cpu_s(), until = start + (seconds + 60) * 1000000LL;
            } else if (c == listener) {
                int peer;
                while ((peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) made(GIVER, peer);
            } else
                readable(c);
        }
    }
    printf("{\"sent\":%lu,\"got\":%lu,\"timed\":%lu,\"chunks\":%lu,\"wrong\":%lu,\"finished\":%d,\"late_sends\":%lu,\"p50_ms\":%.1f,\"p99_ms\":%.1f,\"worst_ms\":%.1f,\"seconds\":%.3f,\"busy\":%.3f}\n",
           sent, got, timed, chunks, wrong, finished, late_sends, share_us(0.5) / 1000, share_us(0.99) / 1000, worst / 1000.0, (now_us() - start) / 1e6, (cpu_s() - cpu) / ((now_us() - start) / 1e6));
    return 0;
}
