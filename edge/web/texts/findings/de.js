// German texts of the findings of the examination, by code: state, reason, remedy, and what the safe fix has done.
// The English ones come from the gateway.
const WAITS = "{count} Beobachtungen ({megabytes} MB) warten auf die Historie";
const OFFLOAD = "`edge outbox status` zeigt den Grund; siehe docs/offload.md";
const BROKER = "es kommen keine Messwerte an; ein Broker mit Persistenz speichert die mit QoS 1 und 2";
const WORN = "eine abgenutzte Karte wird schreibgeschützt oder verliert Daten; bewahren Sie Sicherungen anderswo auf";
const REPLACE = "erstellen Sie eine Sicherung (`edge backup`) und ersetzen Sie die Karte; haltbare nennt docs/operations.md";
const WRITES = "eine Karte ist nach etwa 10 bis 100 TB abgenutzt";
const WRITER = "finden Sie das Programm, das schreibt (`iotop -ao`): Protokolle, Auslagerung; für das Gateway `edge bench wear` und docs/operations.md";
const EXPIRED = "danach lehnen Clients oder das Gateway selbst Verbindungen ab";
const NO_CONNECTION = "so kann sich kein Client verbinden";
const AUTHORITY = "verschieben Sie es, führen Sie `edge cert init` aus und verteilen Sie das neue an die Clients";
const FILE = "ersetzen Sie es durch ein erneuertes";
const CLOCK = "Messwerte erhalten falsche Zeiten, Token und Zertifikate laufen falsch ab, Updates mit `at` laufen zur falschen Zeit";
const TIME_SERVER = "prüfen Sie, ob der Rechner einen Zeitserver erreicht: `timedatectl`, `systemctl status systemd-timesyncd`";
const FREE = "{free} MB von {total} GB sind frei";
const SPACE = "schaffen Sie Platz: alte Protokolle (`journalctl --vacuum-size=50M`), Pakete (`apt clean`), DATA_DIR.before-restore";
const MEMORY = "ohne freien Speicher beendet der Kernel einen Prozess, wahrscheinlich das Gateway, wenn es der größte ist";
const PROCESSES = "finden Sie die größten Prozesse (`ps aux --sort=-rss | head`); beenden Sie einen oder nehmen Sie einen Rechner mit mehr Speicher";
const GAP = "Diagramme haben dort eine Lücke; alle anderen Werte sind vollständig";
const RESTORE = "stellen Sie eine Sicherung wieder her (edge restore) oder löschen Sie sie: Sie liegen in {directory}";
const HEAT = "ein heißer Rechner läuft langsamer, und Hitze verkürzt die Lebensdauer seiner Karte";
const AIR = "verbessern Sie die Kühlung: Luftstrom, Kühlkörper oder Lüfter; vermeiden Sie direkte Sonne";
const POWER = "Rechner mit zu wenig Strom stürzen ab und beschädigen die Daten auf ihrer Karte";
const SUPPLY = "verwenden Sie das Netzteil des Herstellers, ein kurzes Kabel und einen USB-Verteiler mit eigenem Netzteil";
const ENDED = "Läufe des letzten Tages ohne normales Ende: {count}; der letzte: ";
const DOWNTIME = "während eines Ausfalls gehen Messwerte verloren oder warten beim Broker";
const OWN = "das Zertifikat des Gateways", ISSUER = "das Zertifikat der Zertifizierungsstelle", UNTIL = "({file}) gilt bis {date}";

export const FINDINGS = {
  "check.failed": ["diese Prüfung ist misslungen: {reason}"],
  "backlog.unknown": ["der Rückstand ist nicht bekannt"],
  "backlog.full": ["{count} Updates warten, von höchstens {limit}", "darüber hinaus werden Updates abgelehnt", "`edge engine` zeigt die Kosten der Updates, `edge explain` die eines Abonnements; oder senden Sie weniger"],
  "backlog.updates": ["{count} Updates warten"],
  "backlog.dropped": ["{count} Beobachtungen sind für die Historie verloren", "ihr Ausgang war voll", OFFLOAD],
  "backlog.not_shipped": ["nichts wird übertragen: {reason}", `${WAITS}; wenn der Ausgang voll ist, werden sie verworfen`, OFFLOAD],
  "backlog.outbox_full": [`${WAITS}, von höchstens {limit} MB`, "darüber hinaus werden die ältesten verworfen, oder Updates schlagen fehl", OFFLOAD],
  "backlog.old": [`${WAITS}, die älteste seit {days} Tagen`, "die Historie hat sie noch nicht", OFFLOAD],
  "backlog.outbox": [WAITS],
  "broker.off": ["MQTT ist ausgeschaltet (mqtt.enabled)"],
  "broker.embedded": ["der eingebaute; er speichert nichts, während das Gateway steht (docs/durability.md)"],
  "broker.connected": ["das Gateway ist mit {broker} verbunden"],
  "broker.not_subscribed": ["{broker} hat die Abonnements nicht für alle Topics in mqtt.topics angenommen", "Messwerte der abgelehnten kommen nicht an", "erlauben Sie dem Benutzer des Gateways in der Zugriffskontrolle des Brokers, mqtt.topics zu abonnieren; das Protokoll nennt die abgelehnten Filter (`journalctl -u edge | grep subscription_refused`)"],
  "broker.unreachable": ["{broker} ist nicht erreichbar: {reason}", BROKER, "prüfen Sie, ob der Broker läuft, und Rechner und Port in mqtt.broker; das Gateway verbindet sich wieder"],
  "broker.unknown": ["{broker} nimmt Verbindungen an; ob das Gateway verbunden ist, ist nicht bekannt"],
  "broker.not_connected": ["{broker} nimmt Verbindungen an, aber das Gateway ist nicht verbunden", BROKER, "das Protokoll hat den Grund (`journalctl -u edge | grep mqtt`): Benutzername, Passwort, Zertifikat oder ein anderer Client mit demselben Namen"],
  "card.unknown": ["der Kernel hat keine Daten über den Datenträger des Datenverzeichnisses"],
  "card.used": ["{disk}: höchstens {percent} % der Lebensdauer sind verbraucht", WORN, REPLACE],
  "card.used_up": ["{disk}: die ganze Lebensdauer ist verbraucht", WORN, REPLACE],
  "card.reserve": ["{disk}: {percent} % der Reserveblöcke sind verbraucht", WORN, REPLACE],
  "card.no_estimate": ["{disk} meldet die Abnutzung nicht, und der Rechner läuft für eine Schätzung noch nicht lange genug"],
  "card.written": ["{disk}: {gigabytes} GB werden am Tag geschrieben", WRITES, WRITER],
  "card.written_own": ["{disk}: {gigabytes} GB werden am Tag geschrieben; das Gateway selbst hat {own} MB von {written} MB geschrieben", WRITES, WRITER],
  "certificates.none": ["keine sind in Gebrauch"],
  "certificates.refused_own": [`${OWN}: {reason}`, NO_CONNECTION, "edge cert init"],
  "certificates.refused_authority": [`${ISSUER}: {reason}`, NO_CONNECTION, AUTHORITY],
  "certificates.refused_file": ["{setting}: {reason}", NO_CONNECTION, FILE],
  "certificates.expired_own": [`${OWN} ${UNTIL}`, EXPIRED, "prüfen Sie die Uhr; dann: edge cert init"],
  "certificates.expired_authority": [`${ISSUER} ${UNTIL}`, EXPIRED, `prüfen Sie die Uhr; dann: ${AUTHORITY}`],
  "certificates.expired_file": [`{setting} ${UNTIL}`, EXPIRED, `prüfen Sie die Uhr; dann: ${FILE}`],
  "certificates.valid_own": [`${OWN} ${UNTIL}`, EXPIRED, "edge cert init"],
  "certificates.valid_authority": [`${ISSUER} ${UNTIL}`, EXPIRED, AUTHORITY],
  "certificates.valid_file": [`{setting} ${UNTIL}`, EXPIRED, FILE],
  "clock.early": ["die Uhr zeigt {date}", CLOCK, TIME_SERVER],
  "clock.set_back": ["die Uhr zeigt {date}, und das Gateway wurde {started} gestartet", CLOCK, TIME_SERVER],
  "clock.unknown": ["der Kernel meldet nicht, ob die Uhr synchronisiert ist"],
  "clock.synchronized": ["sie ist mit einem Zeitserver synchronisiert"],
  "clock.not_synchronized": ["sie ist nicht synchronisiert", `sie geht am Tag einige Sekunden falsch: ${CLOCK}`, TIME_SERVER],
  "clock.no_battery": ["sie ist nicht synchronisiert, und der Rechner hat keine Uhr mit Batterie", `sie geht am Tag einige Sekunden falsch: ${CLOCK}`, TIME_SERVER],
  "disk.read_only": ["{place} ist schreibgeschützt", "nichts kann gespeichert werden, also werden Updates abgelehnt", "das tut der Kernel nach Fehlern des Dateisystems: prüfen Sie `dmesg`, erstellen Sie eine Sicherung, ersetzen Sie die Karte"],
  "disk.passing": ["das Datenverzeichnis liegt auf {kind}", "sein Inhalt kann bei einem Neustart verloren gehen", "setzen Sie data_dir auf ein Verzeichnis auf einem Datenträger"],
  "disk.inodes": ["nur noch {count} Dateien passen auf {place}", "ohne Inodes kann keine Datei angelegt werden", "finden Sie ein Verzeichnis mit sehr vielen kleinen Dateien und leeren Sie es"],
  "disk.full": [FREE, "bei vollem Datenträger werden Updates abgelehnt; Abfragen gehen weiter, und Messwerte warten beim Broker", SPACE],
  "disk.little": [`${FREE}; das Gateway braucht bis zu {needed} MB`, "bei vollem Datenträger werden Updates abgelehnt", SPACE],
  "disk.free": [FREE],
  "files.no_directory": ["{directory} ist noch nicht da; das Gateway legt es an"],
  "files.in_order": ["{directory} ist in Ordnung"],
  "files.readable": ["andere Benutzer dieses Rechners haben Zugriff auf {names}", "sie können Daten lesen, für die man ein Token braucht", "chmod go= {paths}", "{names}: nur für den Besitzer"],
  "files.clients_damaged": ["{file} ist beschädigt oder nicht lesbar: {reason}", "das Gateway startet nicht mit Sicherheit, oder Clients werden abgelehnt", "stellen Sie eine Sicherung wieder her (edge restore); ohne Sicherung verschieben Sie die Datei und lassen Sie die Clients neu zu"],
  "files.client_rows_damaged": ["{file} hat beschädigte Zeilen: {rows}", "diese werden abgelehnt; alle anderen gehen", "ein Client: edge clients revoke, dann edge clients allow; ein Signaturschlüssel: edge clients rotate-key --now; ein OSCORE-Schlüssel: edge clients oscore; oder stellen Sie eine Sicherung wieder her (edge restore)"],
  "files.foreign": ["{names} gehören nicht dem Besitzer von {directory}", "das Gateway kann sie vielleicht nicht schreiben", "chown --recursive --reference={directory} {directory}", "{count} davon gehören jetzt dem Besitzer des Verzeichnisses"],
  "files.drafts": ["Überreste: {names}", "es sind Teile unfertiger Dateien, die Platz brauchen", "rm {paths}", "{names} entfernt"],
  "files.endpoints": ["{file} nennt Adressen, und kein Gateway läuft", "Befehle benutzen diese Adressen", "rm {path}; der nächste Start schreibt die Datei neu", "{file} entfernt"],
  "files.restore_draft": ["Überrest: {path}", "eine abgebrochene Wiederherstellung hat es hinterlassen, und es braucht Platz", "rm -r {path}", "{name} entfernt"],
  "files.before_restore": ["{path} ist das Datenverzeichnis vor einer Wiederherstellung", "es braucht Platz und enthält alte Geheimnisse", "entfernen Sie es, wenn Sie es nicht mehr brauchen"],
  "files.staged": ["eine Sicherung ist bereitgestellt", "der nächste Start des Gateways ersetzt seine Daten durch die der Sicherung", "starten Sie das Gateway neu oder verwerfen Sie die Sicherung: edge restore --unstage"],
  "files.log_stopped": ["{file} belegt {megabytes} MB", "bis zum Start des Gateways belegt es Platz", "starten Sie das Gateway oder lassen Sie es mit --fix in die Datei übertragen", "das Write-ahead-Log ist jetzt in der Datei"],
  "files.log_held": ["{file} belegt {megabytes} MB", "ein anderes Programm liest die Datei, deshalb kann sie nicht geleert werden", "beenden Sie andere Programme, die sie geöffnet haben (`fuser -v`)"],
  "gateway.no_access": ["dieser Benutzer darf {directory} nicht lesen, deshalb ist der Zustand des Gateways nicht bekannt", "", "führen Sie es als root aus (`sudo edge doctor`) oder als der Benutzer des Gateways"],
  "gateway.stopped": ["auf {directory} läuft kein Gateway", "Messwerte gehen verloren oder warten beim Broker; manche Prüfungen sind ohne das Gateway nicht möglich", "starten Sie es: `systemctl start edge` oder `edge run`; ein anderes Gateway wählen Sie mit --data-dir oder --config"],
  "gateway.silent": ["es läuft (Prozess {process}) und antwortet nicht: {reason}", "auch Clients erhalten keine Antwort; manche Prüfungen sind ohne Antwort nicht möglich", "prüfen Sie das Protokoll (`journalctl -u edge`); warten Sie, wenn es startet, sonst starten Sie es neu: `systemctl restart edge`"],
  "gateway.denied": ["es läuft (Prozess {process}), lehnt aber das Token in EDGE_TOKEN ab", "", "edge clients token NAME gibt eines aus"],
  "gateway.degraded": ["{reason}", "das Gateway ist beeinträchtigt", "beheben Sie das gemeldete Problem; dann macht das Gateway von selbst weiter"],
  "gateway.status": ["es antwortet {status}", "das Gateway ist beeinträchtigt", "beheben Sie das gemeldete Problem; dann macht das Gateway von selbst weiter"],
  "gateway.stalled": ["ein Bestandteil kommt nicht voran: {component}: {reason}", "der Watchdog startet ihn neu, wenn es so bleibt", "prüfen Sie noch einmal"],
  "gateway.mapping_fault": ["eine Zuordnung hat einen Fehler: {reason}", "sie hat keine Wirkung", "siehe `edge mapping check FILE`; das Gateway lädt die Datei, sobald sie gespeichert ist"],
  "gateway.mapping_fault_previous": ["eine Zuordnung hat einen Fehler: {reason}", "bis zum Neustart des Gateways gilt ihre vorherige Version", "siehe `edge mapping check FILE`; das Gateway lädt die Datei, sobald sie gespeichert ist"],
  "gateway.mapping_fault_announced": ["ein Gerät kündigt etwas an, das nicht verwendbar ist: {reason}", "der Wert fehlt, ist nicht einstellbar, hat keine Einheit oder folgt der vorigen Ankündigung", "berichtigen Sie es am Gerät, oder ordnen Sie seine Nachrichten in einer eigenen Datei zu: docs/how-to/discovery.md, docs/sparkplug.md"],
  "gateway.rule_fault": ["eine Regel hat einen Fehler: {reason}", "sie hat keine Wirkung", "siehe `edge rules test FILE`; das Gateway lädt die Datei, sobald sie gespeichert ist"],
  "gateway.query_fault": ["eine fortlaufende Abfrage hat einen Fehler: {reason}", "sie hat keine Wirkung", "berichtigen Sie ihre Datei oder veröffentlichen Sie die Abfrage noch einmal"],
  "gateway.announce_fault": ["Ankündigungen an Home Assistant scheitern: {reason}", "Home Assistant zeigt vielleicht alte Werte oder keine Geräte", "siehe docs/how-to/home-assistant.md; das Gateway versucht es wieder"],
  "gateway.runs": ["Version {version} läuft (Prozess {process}), und alle Bestandteile kommen voran"],
  "gateway.few_details": ["nicht angemeldete Clients erhalten wenig Einzelheiten: Rückstand und Zuordnungen wurden nicht geprüft", "", "export EDGE_TOKEN=$(edge clients token NAME) eines Clients, der verwalten darf"],
  "memory.unknown": ["der Kernel meldet es nicht"],
  "memory.free": ["{free} MB von {total} MB sind frei", MEMORY, PROCESSES],
  "memory.free_own": ["{free} MB von {total} MB sind frei; das Gateway belegt {own} MB", MEMORY, PROCESSES],
  "memory.swap": ["{megabytes} MB sind im Auslagerungsspeicher auf der Karte", "das nutzt die Karte ab und ist langsam", PROCESSES],
  "memory.killed": ["der Kernel hat seit seinem Start {count} Prozesse aus Mangel an Speicher beendet", MEMORY, `\`journalctl -k | grep -i oom\` zeigt welche; ${PROCESSES}`],
  "modbus.answers": ["das Modbus-Gerät {name} antwortet"],
  "modbus.no_value": ["das Modbus-Gerät {name} antwortet, aber gibt keinen Wert von {values}", "diese Beobachtungen behalten ihren letzten Wert", "siehe /api/bad-values für die Antwort des Geräts; versuchen Sie das Register mit `edge modbus read` (docs/modbus.md)"],
  "modbus.silent": ["das Modbus-Gerät {name} antwortet nicht{reason}", "seine Werte werden nicht aktualisiert, und Befehle warten", "prüfen Sie Strom und Verkabelung sowie host, `unit_id`, `baud` und `parity` in der Zuordnungsdatei (docs/modbus.md); das Gateway versucht es von selbst wieder"],
  "sparkplug.connected": ["verbundene Knoten und Geräte von Sparkplug: {count}"],
  "sparkplug.refused": ["die Geburt des Sparkplug-Geräts {name} wird abgelehnt{reason}", "seine Werte werden ignoriert", "beheben Sie die Ursache (docs/sparkplug.md) und starten Sie dann den Knoten neu"],
  "sparkplug.away": ["der Knoten oder das Gerät {name} von Sparkplug ist nicht verbunden", "seine Werte sind alt, und Befehle warten auf seine Geburt", "prüfen Sie Strom, Verbindung zum Broker und die Kennung des primären Hosts (docs/sparkplug.md)"],
  "sparkplug.more": ["weitere Knoten und Geräte von Sparkplug, die nicht verbunden oder abgelehnt sind: {count}", "ihre Werte sind alt oder werden ignoriert", "siehe `sparkplug` in /health"],
  "recent.off": ["die jüngsten Werte werden nicht aufbewahrt: recent.enabled ist false"],
  "recent.files_damaged": ["{count} Dateien mit jüngsten Werten sind beschädigt: {names}", GAP, RESTORE],
  "recent.more_files_damaged": ["{count} Dateien mit jüngsten Werten sind beschädigt: {names} und {more} weitere", GAP, RESTORE],
  "recent.bytes": ["die jüngsten Werte belegen {megabytes} MB, von höchstens {limit} MB"],
  "recent.not_written": ["die jüngsten Werte werden nicht geschrieben: {reason}", "sie warten im Speicher, und die ältesten werden verworfen, wenn er voll ist", "schaffen Sie Platz auf dem Datenträger oder machen Sie DATA_DIR/recent zu einem beschreibbaren Verzeichnis; das Gateway versucht es von selbst wieder"],
  "recent.parts_damaged": ["seit dem Start wurden {count} beschädigte Teile der jüngsten Werte gefunden", GAP, "das Protokoll nennt die Dateien (recent.file_damaged); wenn es wieder geschieht, prüfen Sie die Karte"],
  "recent.removed": ["seit dem Start wurden {count} Dateien mit jüngsten Werten vorzeitig entfernt", "sie belegten mehr als recent.max_bytes, deshalb beginnen Diagramme später", "ein größeres recent.max_bytes oder kürzere recent.raw_hours und recent.minutes_days"],
  "restarts.first": ["hier lief noch nichts"],
  "restarts.unreadable": ["{file} ist nicht lesbar: {reason}"],
  "restarts.none": ["Starts bisher: {count}; keiner des letzten Tages nach einem Fehler"],
  "restarts.crashed": [`${ENDED}beendet oder abgestürzt, während der Rechner weiterlief{detail}`, DOWNTIME, "prüfen Sie das Protokoll des Kernels (`journalctl -k | grep -i -e oom -e segfault`) und das Protokoll vor dem Start"],
  "restarts.power": [`${ENDED}Stromausfall oder Reset des Rechners{detail}`, DOWNTIME, "prüfen Sie die Stromversorgung, und ob ein Hardware-Watchdog den Rechner zurückgesetzt hat"],
  "restarts.lost": [`${ENDED}es konnte sich nicht selbst helfen und hat sich beendet{detail}`, DOWNTIME, "der Grund nennt den Bestandteil, der steht; `edge engine` zeigt die Kosten der Updates"],
  "restarts.stuck": [`${ENDED}die Ereignisschleife stand, und es hat sich beendet{detail}`, DOWNTIME, "das Protokoll hat den Stack (`journalctl -u edge`); bitte melden Sie es"],
  "restarts.stop_timeout": [`${ENDED}es hielt nicht rechtzeitig an und wurde beendet{detail}`, DOWNTIME, "ein Datenträger oder Client war langsam; erwägen Sie ein längeres shutdown.timeout"],
  "restarts.start_failed": [`${ENDED}es konnte nicht starten{detail}`, DOWNTIME, "das Protokoll hat den Grund; `edge config check` prüft die Einstellungen"],
  "restarts.unknown": [`${ENDED}die Aufzeichnung ist nicht lesbar{detail}`, DOWNTIME, "die Datei last-run.json war beschädigt, vielleicht durch die Karte"],
  "serial.connected": ["der Anschluss {name} ist verbunden"],
  "serial.not_connected": ["der Anschluss {name} ist nicht verbunden{reason}", "sein Gerät sendet keine Messwerte und erhält keine Befehle", "prüfen Sie den Stecker, `device` in der Zuordnungsdatei und die Gruppe dialout (docs/serial.md); das Gateway verbindet sich von selbst wieder"],
  "temperature.degrees": ["{degrees} °C", HEAT, AIR],
  "temperature.low_voltage": ["die Spannung ist zu niedrig", POWER, SUPPLY],
  "temperature.voltage": ["die Spannung ist richtig"],
  "temperature.unknown": ["der Kernel kennt keinen Temperaturfühler dieses Rechners"],
  "temperature.was_low": ["die Spannung war seit dem Start des Rechners zu niedrig", POWER, SUPPLY],
  "temperature.slowed": ["die Firmware bremst den Prozessor", HEAT, `${AIR}; ${SUPPLY}`],
  "temperature.was_slowed": ["der Prozessor wurde seit dem Start des Rechners gebremst", HEAT, `${AIR}; ${SUPPLY}`],
  "temperature.firmware": ["die Firmware sieht genug Strom und bremst nichts"],
  "units.no_systemd": ["systemd läuft hier nicht"],
  "units.others_failed": ["fehlgeschlagene Units: {names}", "ein Dienst des Rechners arbeitet nicht", "systemctl status {units}"],
  "units.not_there": ["systemd hat keine {unit}: Das Gateway startet nicht mit dem Rechner, oder ein anderes Programm startet es"],
  "units.failed": ["{unit} ist fehlgeschlagen ({result})", "systemd startet sie nicht neu", "`journalctl -u {unit} -n 50` hat den Grund; dann `systemctl restart {unit}`"],
  "units.inactive": ["{unit} ist {state}", "das Gateway steht", "systemctl start {unit}"],
  "units.disabled": ["{unit} ist nicht aktiviert", "nach einem Stromausfall bleibt das Gateway stehen", "systemctl enable {unit}"],
  "units.restarted": ["systemd hat das Gateway {count} Mal neu gestartet", "es endet unerwartet", "siehe die Prüfung `restarts` und das Protokoll"],
  "units.active": ["{unit} ist aktiv und wurde nie neu gestartet"],
  "update.undone": ["die Aktualisierung auf {version} wurde zurückgenommen: ihr Gateway lief nicht fehlerfrei", "auf dem Rechner läuft das vorige System", "installieren Sie eine neuere: docs/images.md; ihre Überreste sind gegebenenfalls in /data/of-undone-update"],
  "update.trial": ["die Aktualisierung auf {version} ist noch nicht bestätigt", "sie wird zurückgenommen, wenn ihr Gateway nicht fehlerfrei läuft", "wenn der Rechner seit der Installation nicht neu gestartet wurde: `reboot`"],
  "update.none": ["keine Aktualisierung wurde zurückgenommen, und keine wartet auf ihre Bestätigung"],
};
