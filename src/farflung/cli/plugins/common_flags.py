"""The flags that kubectl's plugins share."""

from __future__ import annotations

from farflung.cli.plugins.flags import BOOL, Flag

KUBECONFIG = Flag("kubeconfig", "path to the kubeconfig file")

CONNECTION = (
    Flag("as-uid", "UID to impersonate for the operation"),
    Flag("certificate-authority", "Path to a cert file for the certificate authority"),
    Flag("context", "The name of the kubeconfig context to use"),
    Flag(
        "insecure-skip-tls-verify",
        "If true, the server's certificate will not be checked for validity. "
        "This will make your HTTPS connections insecure",
        BOOL,
    ),
    Flag("namespace", "If present, the namespace scope for this CLI request", short="n"),
    Flag("password", "Password for basic authentication to the API server"),
    Flag("proxy-url", "If provided, this URL will be used to connect via proxy"),
    Flag("server", "The address and port of the Kubernetes API server"),
    Flag(
        "tls-server-name",
        "If provided, this name will be used to validate server certificate. "
        "If this is not provided, hostname used to contact the server is used.",
    ),
    Flag("token", "Bearer token for authentication to the API server"),
    Flag("user", "The name of the kubeconfig user to use"),
    Flag("username", "Username for basic authentication to the API server"),
)

#: Those of Go's logging library.  Scripts pass them; of all of them -v alone does something here.
LOGGING = (
    Flag("add_dir_header", "If true, adds the file directory to the header of the log messages", BOOL),
    Flag("alsologtostderr", "log to standard error as well as files", BOOL),
    Flag("log_backtrace_at", "when logging hits line file:N, emit a stack trace (default :0)", "traceLocation"),
    Flag("log_dir", "If non-empty, write log files in this directory"),
    Flag("log_file", "If non-empty, use this log file"),
    Flag(
        "log_file_max_size",
        "Defines the maximum size a log file can grow to. Unit is megabytes. "
        "If the value is 0, the maximum file size is unlimited. (default 1800)",
        "uint",
    ),
    Flag("logtostderr", "log to standard error instead of files (default true)", BOOL),
    Flag(
        "one_output",
        "If true, only write logs to their native severity level (vs also writing to each lower severity level)",
        BOOL,
    ),
    Flag("skip_headers", "If true, avoid header prefixes in the log messages", BOOL),
    Flag("skip_log_headers", "If true, avoid headers when opening log files", BOOL),
    Flag("stderrthreshold", "logs at or above this threshold go to stderr (default 2)", "severity"),
    Flag("v", "number for the log level verbosity", "Level", "v"),
    Flag("vmodule", "comma-separated list of pattern=N settings for file-filtered logging", "moduleSpec"),
)
