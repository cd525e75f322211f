#!/bin/sh
# After the package is installed or upgraded: the user, and what systemd knows. The service is not started unasked.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers weir.conf
elif ! getent passwd weir >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/weir --shell /usr/sbin/nologin weir
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart weir.service # of an upgrade
fi
