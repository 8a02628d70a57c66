/* A receiver of webhooks that counts, and a sender that paces: messages are sent at a fixed rate, whatever becomes of
 * the ones before, and each webhook call that comes back is held against the message that it tells of.
 *
 * `hooks --listen PORT` answers every POST with 200. With `--rate R --port P --path PATH --body FILE` it sends R requests
 * a second to P as well; every place for an id in the body gets the number of the request, so that a webhook whose URL
 * ends with it tells which one it is. `--end TEXT` is what the body of such a webhook must hold.
 *
 * It says "ready" when it listens. A line `rate R` on stdin is another rate from now on. For a line `tell` it prints what
 * there was so far, with the latencies (from when a request was due to be sent, to when its webhook arrived) of requests
 * that were due since the last such line. It ends with stdin. */
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

#define ID_SLOT "00000000-0000-4000-8000-000000000000" /* what a body template has where an id belongs */
#define ID_LEN 36
#define MAX_SLOTS 4
#define SENT_MAX (1 << 20) /* requests that are remembered */

/* A connection of a caller of webhooks, or one over which messages are sent. */
struct conn { int fd, sends, busy; char in[32768]; size_t in_len; char *out; size_t out_sent; };

static int poll_fd, listen_port, server_port, lanes = 64;
static double rate, paced_from, window_from;
static const char *server_path = "/", *end_text;
static char *request;
static size_t request_len, slot[MAX_SLOTS];
static int slots;
static unsigned run_id;
static struct conn **senders;

static double *due_at;              /* when each request was due; negative: its webhook has come */
static long sent, paced, answered, arrived, told, callers, n_errors;
static char first_error[300];
static float *latency;
static long latencies, latency_cap;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    fprintf(stderr, "hooks: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void error_at(const char *what, const char *text, size_t len) {
    if (n_errors++) return;
    int at = snprintf(first_error, 80, "%s: ", what);
    for (size_t i = 0; i < len && i < 200; i++)
        first_error[at++] = text[i] < 32 || text[i] > 126 || text[i] == '"' || text[i] == '\\' ? '\'' : text[i];
    first_error[at] = 0;
}

static void watch(struct conn *c, int op) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (op == EPOLL_CTL_ADD && c->sends ? EPOLLOUT : 0) | EPOLLET, .data.ptr = c};
    if (epoll_ctl(poll_fd, op, c->fd, &e) < 0) fail("epoll_ctl");
}

static void flush_out(struct conn *c) {
    while (c->out_sent < request_len) {
        ssize_t n = send(c->fd, c->out + c->out_sent, request_len - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
        if (n < 0) {
            error_at("send", strerror(errno), strlen(strerror(errno)));
            return;
        }
        c->out_sent += (size_t)n;
    }
}

static void dial(struct conn *c) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server_port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    if ((c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) < 0) fail("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) fail("connect");
    c->out_sent = request_len;
    watch(c, EPOLL_CTL_ADD);
}

/* Sends what is due, as far as there are connections with nothing under way: what is late counts from when it was due. */
static void pace(void) {
    double t = now();
    for (int i = 0; i < lanes && sent < SENT_MAX && (double)paced / rate <= t - paced_from; i++) {
        struct conn *c = senders[i];
        if (c->busy) continue;
        char id[ID_LEN + 1];
        snprintf(id, sizeof id, "%08x-0000-4000-8000-%012lx", run_id, sent);
        for (int s = 0; s < slots; s++) memcpy(c->out + slot[s], id, ID_LEN);
        due_at[sent] = paced_from + (double)paced / rate;
        sent++, paced++;
        c->busy = 1, c->out_sent = 0;
        flush_out(c);
    }
}

/* A webhook has arrived: which message it is of stands at the end of its path. */
static void arrive(const char *head, const char *body, size_t body_len) {
    arrived++;
    const char *end = strstr(head, " HTTP/1.1\r\n"), *id = end ? end - ID_LEN : NULL;
    if (memcmp(head, "POST ", 5) || !end || !body_len || body[0] != '{') {
        error_at("not a webhook", head, strlen(head));
        return;
    }
    if (id < head + 5 || id[8] != '-' || id[14] != '4') return;
    long number = strtol(id + 24, NULL, 16);
    if ((unsigned)strtoul(id, NULL, 16) != run_id || number < 0 || number >= sent) {
        error_at("a webhook of another message", id, ID_LEN);
        return;
    }
    if (end_text && !memmem(body, body_len, end_text, strlen(end_text))) {
        error_at("a webhook without its end", body, body_len);
        return;
    }
    if (due_at[number] < 0) return; /* once more: that is allowed (at least once) */
    told++;
    if (due_at[number] >= window_from) {
        if (latencies == latency_cap) latency = realloc(latency, (size_t)(latency_cap = latency_cap ? latency_cap * 2 : 1 << 14) * sizeof *latency);
        latency[latencies++] = (float)(now() - due_at[number]);
    }
    due_at[number] = -1;
}

/* Takes whole requests, or whole answers, from what has come; 0 when the connection is to end. */
static int take(struct conn *c) {
    static const char ok[] = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - 1 - c->in_len, 0);
        if (n < 0 && errno == EAGAIN) return 1;
        if (n <= 0) return 0;
        c->in_len += (size_t)n;
        c->in[c->in_len] = 0;
        for (;;) {
            char *end = strstr(c->in, "\r\n\r\n"), *length = strcasestr(c->in, "\r\ncontent-length:");
            if (!end) break;
            size_t head = (size_t)(end + 4 - c->in), body = length && length < end ? (size_t)atol(length + 17) : 0;
            if (c->in_len < head + body) break;
            if (c->sends) {
                answered++;
                c->busy = 0;
                if (memcmp(c->in, "HTTP/1.1 200", 12) || !memmem(c->in + head, body, "\"result\"", 8)) error_at("no result", c->in + head, body);
            } else {
                arrive(c->in, c->in + head, body);
                send(c->fd, ok, sizeof ok - 1, MSG_NOSIGNAL);
            }
            memmove(c->in, c->in + head + body, c->in_len -= head + body);
            c->in[c->in_len] = 0;
        }
        if (c->in_len == sizeof c->in - 1) {
            error_at("too long", c->in, 200);
            return 0;
        }
    }
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(double q) { return latencies ? (double)latency[(long)((double)(latencies - 1) * q)] : 0; }

static void report(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    if (latency) qsort(latency, (size_t)latencies, sizeof *latency, by_size);
    long behind = rate > 0 ? (long)((now() - paced_from) * rate) - paced : 0;
    printf("{\"at_s\":%.6f,\"sent\":%ld,\"answered\":%ld,\"behind\":%ld,\"arrived\":%ld,\"told\":%ld,\"callers\":%ld,\"latencies\":%ld,"
           "\"p50_s\":%.6f,\"p99_s\":%.6f,\"max_s\":%.6f,\"cpu_s\":%.6f,\"errors\":%ld,\"first_error\":\"%s\"}\n",
           now(), sent, answered, behind > 0 ? behind : 0, arrived, told, callers, latencies, quantile(0.5), quantile(0.99), quantile(1),
           cpu, n_errors, first_error);
    fflush(stdout);
    latencies = 0;
    window_from = now();
}

/* What stdin says; 0 at its end. */
static int obey(void) {
    char line[256];
    ssize_t n = read(0, line, sizeof line - 1);
    if (n <= 0) return 0;
    line[n] = 0;
    if (!strncmp(line, "rate ", 5))
        rate = atof(line + 5), paced = 0, paced_from = now();
    else
        report();
    return 1;
}

static void prepare(const char *body_path) {
    FILE *f = fopen(body_path, "rb");
    char body[16384];
    if (!f) fail(body_path);
    size_t len = fread(body, 1, sizeof body, f);
    fclose(f);
    request_len = (size_t)asprintf(&request,
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\nContent-Length: %zu\r\n\r\n%.*s",
        server_path, server_port, len, (int)len, body);
    for (char *p = request; slots < MAX_SLOTS && (p = strstr(p, ID_SLOT)); p += ID_LEN) slot[slots++] = (size_t)(p - request);
    due_at = calloc(SENT_MAX, sizeof *due_at);
    senders = calloc((size_t)lanes, sizeof *senders);
    for (int i = 0; i < lanes; i++) {
        senders[i] = calloc(1, sizeof **senders);
        senders[i]->sends = 1;
        senders[i]->out = malloc(request_len);
        memcpy(senders[i]->out, request, request_len);
        dial(senders[i]);
    }
}

static int listening(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)listen_port)};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1024)) fail("listen");
    return fd;
}

int main(int argc, char **argv) {
    const char *body_path = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];
        if (!strcmp(key, "--listen")) listen_port = atoi(value);
        else if (!strcmp(key, "--rate")) rate = atof(value);
        else if (!strcmp(key, "--port")) server_port = atoi(value);
        else if (!strcmp(key, "--path")) server_path = value;
        else if (!strcmp(key, "--body")) body_path = value;
        else if (!strcmp(key, "--end")) end_text = value;
        else return fprintf(stderr, "hooks: %s is no option\n", key), 2;
    }
    signal(SIGPIPE, SIG_IGN);
    srand((unsigned)(time(NULL) ^ getpid()));
    run_id = (unsigned)rand() * 2654435761u ^ (unsigned)getpid();
    if ((poll_fd = epoll_create1(0)) < 0) fail("epoll_create1");
    int listener = listening(), on_stdin = 0, on_listener = 0;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &on_listener}, events[256];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &e);
    e = (struct epoll_event){.events = EPOLLIN | EPOLLHUP, .data.ptr = &on_stdin};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, 0, &e);
    if (body_path) prepare(body_path);
    window_from = paced_from = now();
    puts("ready");
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(poll_fd, events, 256, rate > 0 ? 1 : -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &on_stdin) {
                if (!obey()) return 0;
            } else if (events[i].data.ptr == &on_listener) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0) continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
                struct conn *c = calloc(1, sizeof *c);
                c->fd = fd;
                callers++;
                watch(c, EPOLL_CTL_ADD);
                if (!take(c)) close(fd), free(c), callers--;
            } else {
                struct conn *c = events[i].data.ptr;
                if (c->sends && events[i].events & EPOLLOUT) flush_out(c);
                if (!(events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) || take(c)) continue;
                close(c->fd);
                if (c->sends) {
                    if (c->busy) error_at("connection ended early", c->in, c->in_len);
                    c->busy = 0, c->in_len = 0;
                    dial(c);
                } else
                    free(c), callers--;
            }
        }
        if (rate > 0) pace();
    }
}
