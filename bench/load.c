/* The load side of the benchmark: one thread, epoll, HTTP/1.1, and a check of every answer and every event.
 *
 * `load loop`  keeps N connections busy for some seconds (or some requests) and prints rate and latencies.
 * `load once`  opens N connections, sends one request on each, prints "ready" when each has had its first events,
 *              reads until all streams ended or stdin closes, and prints what arrived and when.
 * `--hold 1` lets a loop, too, say "ready" after its first answers and end when stdin closes.
 *
 * Invariant: an answer that is not a 200 with a result, a chunk out of sequence, or a stream with a chunk too few
 * or too many is counted in "errors", and a row with errors is no result. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ID_SLOT "00000000-0000-4000-8000-000000000000" /* what a body template has where an id belongs */
#define ID_LEN 36
#define MAX_SLOTS 4
#define HEAD_MAX 8192 /* bytes of a request's head */

enum phase { CLOSED, CONNECTING, SENDING, HEAD, BODY, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, DONE };

struct conn {
    int fd;
    enum phase phase;
    char *request;
    size_t sent;
    char head[2048];
    int head_len;
    long left;        /* bytes left of the body or of the HTTP chunk */
    int is_sse, has_data, stalled, ready;
    char start[256];  /* first bytes of a plain body, where the word "result" must be */
    int start_len;
    char *line;       /* an SSE line that a read cut in two */
    size_t line_len, line_cap;
    long id, unseen, chunks, events;
    double began, last_chunk;
};

static struct { int port, conns, chunks, stall, hold, opening, ready_events, read_buffer, unseen; double seconds, warmup; long requests; } want =
    {.conns = 32, .chunks = -1, .opening = 64, .ready_events = 1, .seconds = 3, .warmup = 0.5};
static char *request_template, *id_list;
static size_t request_len, slot[MAX_SLOTS];
static int slots, own_id, epoll_fd, once;
static long ids, id_next, live, opened, ready, started, finished;
static struct conn *conns;
static double t_start, t_from, t_until;
static unsigned run_id;

static long n_requests, n_events, n_streams, n_errors, n_gaps, n_bytes;
static char first_error[400];
static uint32_t *latency;
static long latency_cap;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void error_at(const char *what, const char *text, size_t len) {
    if (n_errors++ == 0) {
        int room = (int)(len > 200 ? 200 : len), at = snprintf(first_error, 100, "%s: ", what);
        for (int i = 0; i < room; i++) first_error[at++] = text[i] < 32 || text[i] > 126 || text[i] == '"' || text[i] == '\\' ? '\'' : text[i];
        first_error[at] = 0;
    }
}

static int counting(void) { return once || (now() >= t_from && now() < t_until); }

static void begin(struct conn *c);

static void shut(struct conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->phase = CLOSED;
}

static void dial(struct conn *c) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)want.port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int one = 1;
    if ((c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) < 0) fail("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c->stalled) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) fail("connect");
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e) < 0) fail("epoll_ctl");
    c->phase = CONNECTING;
}

/* Writes as much of the request as the socket takes. */
static void push(struct conn *c) {
    while (c->sent < request_len) {
        ssize_t n = send(c->fd, c->request + c->sent, request_len - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) return;
            error_at("send", strerror(errno), strlen(strerror(errno)));
            shut(c);
            return;
        }
        c->sent += (size_t)n;
    }
    c->phase = HEAD;
}

static void begin(struct conn *c) {
    started++;
    char id[ID_LEN + 1];
    for (int i = 0; i < slots; i++) {
        if (id_list)
            memcpy(id, id_list + (id_next++ % ids) * (ID_LEN + 1), ID_LEN);
        else
            snprintf(id, sizeof id, "%08x-%04lx-4000-8000-%012lx", run_id, (id_next >> 16) & 0xffff, id_next), id_next++;
        memcpy(c->request + slot[i], id, ID_LEN);
    }
    c->sent = 0, c->head_len = 0, c->start_len = 0, c->is_sse = 0, c->has_data = 0, c->line_len = 0;
    c->id = 0, c->unseen = 0, c->chunks = 0, c->events = 0, c->began = now();
    if (c->fd < 0)
        dial(c);
    else
        c->phase = SENDING, push(c);
}

static void open_more(void) {
    while (opened < want.conns && opened - ready < want.opening) {
        struct conn *c = &conns[opened++];
        c->fd = -1;
        c->stalled = opened > want.conns - want.stall;
        c->request = malloc(request_len);
        memcpy(c->request, request_template, request_len);
        begin(c);
    }
}

static void is_ready(struct conn *c) {
    if (c->ready) return;
    c->ready = 1;
    ready++;
    open_more();
    if (want.hold && ready == want.conns) {
        printf("ready %.6f\n", now() - t_start);
        fflush(stdout);
    }
}

/* One answer is over: check it, count it, go on. */
static void finish(struct conn *c, int reusable) {
    if (c->is_sse) {
        if (want.chunks >= 0 && c->chunks != want.chunks) {
            char said[80];
            snprintf(said, sizeof said, "%ld of %d", c->chunks, want.chunks);
            error_at("chunks in a stream", said, strlen(said));
        }
    } else if (!memmem(c->start, (size_t)c->start_len, "\"result\"", 8))
        error_at("no result", c->start, (size_t)c->start_len);
    if (counting()) {
        if (n_requests == latency_cap) latency = realloc(latency, (size_t)(latency_cap = latency_cap ? latency_cap * 2 : 1 << 16) * 4);
        latency[n_requests++] = (uint32_t)((now() - c->began) * 1e6);
        n_streams += c->is_sse;
    }
    is_ready(c);
    finished++;
    if (!reusable || once) shut(c);
    if (once) {
        c->phase = DONE;
        live--;
    } else if (now() < t_until && (!want.requests || started < want.requests))
        begin(c);
    else
        live--, c->phase = DONE;
}

/* One SSE line, without its end. */
static void line(struct conn *c, const char *s, size_t len) {
    if (len && s[len - 1] == '\r') len--;
    if (!len) {
        if (!c->has_data) return;
        c->has_data = 0;
        c->events++;
        if (counting()) n_events++;
        if (c->events >= want.ready_events) is_ready(c);
    } else if (len > 3 && !memcmp(s, "id:", 3)) {
        char *end;
        long id = strtol(s + 3, &end, 10);
        if (end == s + 3) return;
        if (c->id && id > c->id + 1 && (c->unseen += id - c->id - 1) > want.unseen) n_gaps++;
        if (c->id && id < c->id) error_at("id went back", s, len);
        c->id = id;
    } else if (len > 5 && !memcmp(s, "data:", 5)) {
        c->has_data = 1;
        if (own_id && !memmem(s, len, c->request + slot[0], ID_LEN)) error_at("event without the request's id", s, len);
        if (memmem(s, len > 200 ? 200 : len, "\"error\"", 7)) error_at("error event", s, len);
        if (memmem(s, len > 200 ? 200 : len, "\"task\":", 7)) return; /* a snapshot may hold earlier chunks */
        const char *at = memmem(s, len, "chunk ", 6);
        if (!at || at + 12 > s + len || at[6] < '0' || at[6] > '9') return;
        if (strtol(at + 6, NULL, 10) != c->chunks) error_at("chunk out of sequence", at, 12);
        c->chunks++;
        c->last_chunk = now();
    }
}

static void sse(struct conn *c, const char *s, size_t len) {
    while (len) {
        const char *end = memchr(s, '\n', len);
        size_t n = end ? (size_t)(end - s) : len;
        if (!end || c->line_len) {
            if (c->line_len + n > c->line_cap) c->line = realloc(c->line, c->line_cap = (c->line_len + n) * 2);
            memcpy(c->line + c->line_len, s, n);
            c->line_len += n;
            if (!end) return;
            line(c, c->line, c->line_len);
            c->line_len = 0;
        } else
            line(c, s, n);
        s += n + 1, len -= n + 1;
    }
}

static void body(struct conn *c, const char *s, size_t len) {
    n_bytes += (long)len;
    if (c->is_sse) {
        sse(c, s, len);
        return;
    }
    size_t room = sizeof c->start - (size_t)c->start_len, n = len < room ? len : room;
    memcpy(c->start + c->start_len, s, n);
    c->start_len += (int)n;
}

static void head(struct conn *c) {
    c->head[c->head_len] = 0;
    if (memcmp(c->head, "HTTP/1.1 200", 12)) error_at("status", c->head, (size_t)c->head_len);
    c->is_sse = strcasestr(c->head, "text/event-stream") != NULL;
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    if (length)
        c->left = atol(length + 17), c->phase = BODY;
    else
        c->phase = CHUNK_SIZE, c->left = 0;
    c->head_len = 0;
}

/* Takes bytes of a line that is in c->head until "\n" (or "\r\n\r\n" for the head itself); true when it is whole. */
static int gather(struct conn *c, const char **s, size_t *len) {
    while (*len) {
        char b = *(*s)++;
        --*len;
        if (c->head_len < (int)sizeof c->head - 1) c->head[c->head_len++] = b;
        if (b == '\n' && (c->phase != HEAD || (c->head_len >= 4 && !memcmp(c->head + c->head_len - 4, "\r\n\r\n", 4)))) return 1;
    }
    return 0;
}

static void take(struct conn *c, const char *s, size_t len) {
    while (len && c->phase >= HEAD && c->phase < DONE) {
        size_t n = (size_t)c->left < len ? (size_t)c->left : len;
        switch (c->phase) {
        case HEAD:
            if (!gather(c, &s, &len)) return;
            head(c);
            if (c->phase == BODY && !c->left) finish(c, 1);
            break;
        case BODY:
        case CHUNK_DATA:
            body(c, s, n);
            s += n, len -= n, c->left -= (long)n;
            if (c->left) return;
            if (c->phase == CHUNK_DATA)
                c->phase = CHUNK_END;
            else
                finish(c, 1);
            break;
        case CHUNK_SIZE:
            if (!gather(c, &s, &len)) return;
            c->left = strtol(c->head, NULL, 16);
            c->head_len = 0;
            c->phase = c->left ? CHUNK_DATA : TRAILER;
            break;
        default: /* CHUNK_END and TRAILER are one line end each: no server here sends trailers */
            if (!gather(c, &s, &len)) return;
            c->head_len = 0;
            if (c->phase == TRAILER)
                finish(c, 1);
            else
                c->phase = CHUNK_SIZE;
        }
    }
}

static void pull(struct conn *c) {
    static char buffer[1 << 18];
    while (c->fd >= 0 && c->phase >= SENDING && c->phase < DONE) {
        ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            if (c->phase != HEAD || c->head_len || n < 0) error_at("connection ended early", c->head, (size_t)c->head_len);
            shut(c);
            if (once)
                live--, c->phase = DONE;
            else
                begin(c); /* the server closed a kept connection between two requests */
            return;
        }
        take(c, buffer, (size_t)n);
        if (n < (ssize_t)sizeof buffer) return; /* edge-triggered, but a short read means the socket is empty */
    }
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile(double q) { return n_requests ? latency[(long)((double)(n_requests - 1) * q)] / 1e6 : 0; }

static void report(double seconds) {
    double last = 0;
    long chunks = 0;
    for (long i = 0; i < opened; i++) {
        chunks += conns[i].chunks;
        if (conns[i].last_chunk > last) last = conns[i].last_chunk;
    }
    if (latency) qsort(latency, (size_t)n_requests, 4, by_size);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\":%.6f,\"requests\":%ld,\"streams\":%ld,\"events\":%ld,\"chunks\":%ld,\"bytes\":%ld,\"errors\":%ld,\"gaps\":%ld,"
           "\"p50_s\":%.6f,\"p99_s\":%.6f,\"max_s\":%.6f,\"last_chunk_at\":%.6f,\"finished\":%ld,\"busy\":%.3f,\"first_error\":\"%s\"}\n",
           seconds, n_requests, n_streams, n_events, chunks, n_bytes, n_errors, n_gaps, quantile(0.5), quantile(0.99), quantile(1),
           last, finished, cpu / (now() - t_start), first_error);
}

static char *file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (!f) fail(path);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*len + 1);
    if (fread(text, 1, *len, f) != *len) fail(path);
    text[*len] = 0;
    fclose(f);
    return text;
}

/* Joins head and body template, and remembers where ids belong. */
static void prepare(const char *path, const char *body_path, const char *version, const char *header) {
    size_t body_len;
    char *text = file(body_path, &body_len);
    request_template = malloc(body_len + HEAD_MAX);
    char named[HEAD_MAX / 2] = "";
    if (*version) snprintf(named, sizeof named, "A2A-Version: %s\r\n", version);
    if (*header) snprintf(named + strlen(named), sizeof named - strlen(named), "%s\r\n", header);
    size_t at = (size_t)snprintf(request_template, HEAD_MAX,
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        "%sContent-Length: %zu\r\n\r\n", path, want.port, named, body_len);
    memcpy(request_template + at, text, body_len);
    request_len = at + body_len;
    free(text);
    for (char *p = request_template; slots < MAX_SLOTS && (p = memmem(p, request_len - (size_t)(p - request_template), ID_SLOT, ID_LEN)); p += ID_LEN)
        slot[slots++] = (size_t)(p - request_template);
    own_id = strstr(request_template, "\"id\":\"" ID_SLOT) != NULL; /* the request's own id comes first in the body */
}

static void run(void) {
    struct epoll_event events[256];
    while (live > 0) {
        int wait_ms = once ? 60000 : 100, n = epoll_wait(epoll_fd, events, 256, wait_ms);
        if (n < 0 && errno != EINTR) fail("epoll_wait");
        double t = now();
        if (!once && t > t_until && (!want.requests || t > t_until + 10)) return; /* what is still on its way is not counted */
        if (once && t > t_until) {
            error_at("time is up", "", 0);
            return;
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c) return; /* stdin closed: whoever started this has seen enough */
            if (c->phase == CONNECTING && events[i].events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
                int broken = 0;
                getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &broken, &(socklen_t){sizeof broken});
                if (broken) errno = broken, fail("connect");
                c->phase = SENDING;
            }
            if (c->phase == SENDING) push(c);
            if (c->stalled) {
                if (c->phase == HEAD && !c->ready) live--, is_ready(c); /* it has asked, and now never reads */
            } else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                pull(c);
        }
    }
}

int main(int argc, char **argv) {
    const char *path = "/", *body_path = NULL, *ids_path = NULL, *version = "1.0", *header = "";
    if (argc < 2) return fprintf(stderr, "usage: load loop|once --port N --path P --body FILE [--conns N] [--seconds S] …\n"), 2;
    want.hold = once = !strcmp(argv[1], "once");
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];
        if (!strcmp(key, "--port")) want.port = atoi(value);
        else if (!strcmp(key, "--path")) path = value;
        else if (!strcmp(key, "--body")) body_path = value;
        else if (!strcmp(key, "--ids")) ids_path = value;
        else if (!strcmp(key, "--version")) version = value; /* of A2A; empty: no header */
        else if (!strcmp(key, "--header")) header = value; /* one more, as "Name: value" */
        else if (!strcmp(key, "--conns")) want.conns = atoi(value);
        else if (!strcmp(key, "--seconds")) want.seconds = atof(value);
        else if (!strcmp(key, "--warmup")) want.warmup = atof(value);
        else if (!strcmp(key, "--requests")) want.requests = atol(value);
        else if (!strcmp(key, "--chunks")) want.chunks = atoi(value);
        else if (!strcmp(key, "--stall")) want.stall = atoi(value);
        else if (!strcmp(key, "--hold")) want.hold = atoi(value);
        else if (!strcmp(key, "--unseen")) want.unseen = atoi(value); /* ids that a stream may leave out: what the log has for nobody's eyes */
        else if (!strcmp(key, "--opening")) want.opening = atoi(value);
        else if (!strcmp(key, "--ready-events")) want.ready_events = atoi(value);
        else return fprintf(stderr, "load: %s is no option\n", key), 2;
    }
    if (!body_path) return fprintf(stderr, "load: --body is missing\n"), 2;
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){65536, 65536});
    t_start = now();
    srand((unsigned)(time(NULL) ^ getpid()));
    run_id = (unsigned)rand() * 2654435761u ^ (unsigned)getpid();
    prepare(path, body_path, version, header);
    if (ids_path) {
        size_t len;
        id_list = file(ids_path, &len);
        ids = (long)(len / (ID_LEN + 1));
    }
    if ((epoll_fd = epoll_create1(0)) < 0) fail("epoll_create1");
    if (want.hold) {
        struct epoll_event e = {.events = EPOLLIN | EPOLLHUP, .data.ptr = NULL};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &e);
    } else
        want.opening = want.conns;
    if (once) want.warmup = 0;
    conns = calloc((size_t)want.conns, sizeof *conns);
    live = want.conns;
    t_from = t_start + want.warmup;
    t_until = t_from + want.seconds;
    open_more();
    run();
    double t = now();
    report(once ? t - t_start : (t < t_until ? t : t_until) - t_from);
    return 0;
}
