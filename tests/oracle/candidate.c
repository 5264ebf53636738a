/* Reads one case folder of `python -m gsref.oracle export` (float64), computes loss, dv, dW, writes them to another.
   usage: candidate CASE_FOLDER RESULT_FOLDER */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long shape[3];

static double *load(const char *folder, const char *name) {              /* version 1 .npy, little-endian float64, C order */
    char path[4096], head[10], text[65536];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || fread(head, 1, 10, file) != 10) exit(2);
    size_t length = (unsigned char)head[8] + 256 * (size_t)(unsigned char)head[9];
    if (length >= sizeof text || fread(text, 1, length, file) != length) exit(2);
    text[length] = 0;
    if (!strstr(text, "'<f8'") || !strstr(text, "False")) exit(2);
    long count = 1, k = 0;
    for (char *at = strchr(strstr(text, "'shape'"), '(') + 1; k < 3 && *at != ')'; k++) {
        count *= shape[k] = strtol(at, &at, 10);
        while (*at == ',' || *at == ' ') at++;
    }
    double *data = malloc(count * sizeof *data);
    if (fread(data, sizeof *data, count, file) != (size_t)count) exit(2);
    fclose(file);
    return data;
}

static void save(const char *folder, const char *name, const char *dims, const double *data, long count) {
    char path[4096], text[119];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    int used = snprintf(text, sizeof text, "{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }", dims);
    memset(text + used, ' ', 117 - used);
    text[117] = '\n';
    FILE *file = fopen(path, "wb");
    if (!file || fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file) != 10 || fwrite(text, 1, 118, file) != 118
        || fwrite(data, sizeof *data, count, file) != (size_t)count || fclose(file)) exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    double *v = load(argv[1], "v"), *W = load(argv[1], "W"), *P = load(argv[1], "P"), *y = load(argv[1], "y");
    double *X = load(argv[1], "X");
    long n = shape[0], D = shape[1], d = shape[2], m = d + D;
    double loss = 0, *dv = calloc(m, 8), *dW = calloc(m * m, 8), *z = malloc(D * m * 8), *S = malloc(D * D * 8);
    double *u = malloc(D * 8), *mean = malloc(D * 8);
    for (long s = 0; s < n; s++) {
        for (long j = 0; j < D; j++) {
            memcpy(z + j * m, X + (s * D + j) * d, d * 8);
            memcpy(z + j * m + d, P + j * D, D * 8);
            u[j] = 0;
            for (long a = 0; a < m; a++) u[j] += v[a] * z[j * m + a];
        }
        double f = 0;
        for (long j = 0; j < D; j++) {                                    /* column j of the attention, key i */
            double top = -INFINITY, total = 0;
            for (long i = 0; i < D; i++) {
                double score = 0;
                for (long a = 0; a < m; a++) {
                    double left = 0;
                    for (long b = 0; b < m; b++) left += W[a * m + b] * z[j * m + b];
                    score += z[i * m + a] * left;
                }
                S[i * D + j] = score;
                top = fmax(top, score);
            }
            for (long i = 0; i < D; i++) total += S[i * D + j] = exp(S[i * D + j] - top);
            mean[j] = 0;
            for (long i = 0; i < D; i++) mean[j] += (S[i * D + j] /= total) * u[i];
            f += mean[j];
        }
        double t = y[s] * f, e = exp(-fabs(t)), c = -y[s] * (t < 0 ? 1 : e) / (1 + e) / n;
        loss += (fmax(-t, 0) + log1p(e)) / n;
        for (long i = 0; i < D; i++)
            for (long j = 0; j < D; j++) {
                double g = c * S[i * D + j] * (u[i] - mean[j]);
                for (long a = 0; a < m; a++) {
                    dv[a] += c * S[i * D + j] * z[i * m + a];
                    for (long b = 0; b < m; b++) dW[a * m + b] += g * z[i * m + a] * z[j * m + b];
                }
            }
    }
    char dims[64];
    save(argv[2], "loss", "", &loss, 1);
    snprintf(dims, sizeof dims, "%ld,", m);
    save(argv[2], "dv", dims, dv, m);
    snprintf(dims, sizeof dims, "%ld, %ld", m, m);
    save(argv[2], "dW", dims, dW, m * m);
    return 0;
}
