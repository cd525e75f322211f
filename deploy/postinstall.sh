#!/bin/sh
# Runs after the package is installed or upgraded: creates the user and reloads systemd. A new
# installation does not start the service.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers weir.conf
elif ! getent passwd weir >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/weir --shell /usr/sbin/nologin weir
fi
chmod 0600 /etc/default/weir # an upgrade keeps the file and its mode
chgrp weir /etc/weir/weir.toml
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart weir.service # an upgrade restarts a running service
fi
