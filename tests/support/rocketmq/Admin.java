import java.util.List;
import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Makes topics and groups for tests, one order a line on standard input, one answer a line on standard output.
 * Arguments: name server, and where access keys are demanded, key and secret.
 * Orders: `topic AT NAME QUEUES TYPE`, `group AT NAME ORDERLY RETRIES`, `drop AT NAME`, `brokers`, `queues NAME`,
 * `master BROKER` (its address), `synced CONTROLLER BROKER` (how many replicas have all),
 * `reset AT GROUP TOPIC QUEUE OFFSET`, `user AT NAME SECRET RIGHT,...` (on all topics and groups). AT: addresses of
 * brokers, separated by commas.
 */
public final class Admin {
    private Admin() {
    }

    public static void main(String[] arguments) throws Exception {
        String names = arguments[0];
        DefaultMQAdminExt admin = arguments.length < 3
            ? new DefaultMQAdminExt(10_000L)
            : new DefaultMQAdminExt(new AclClientRPCHook(new SessionCredentials(arguments[1], arguments[2])), 10_000L);
        admin.setNamesrvAddr(names);
        admin.setInstanceName("tests");
        admin.setVipChannelEnabled(false);
        admin.start();
        System.out.println("started");
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                System.out.println(obey(admin, line.split(" ")));
            } catch (Exception error) {
                System.out.println("error " + String.valueOf(error.getMessage()).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static String obey(DefaultMQAdminExt admin, String[] words) throws Exception {
        String[] at = words.length > 2 ? words[1].split(",") : new String[0];
        switch (words[0]) {
            case "topic":
                TopicConfig topic = new TopicConfig(words[2]);
                topic.setReadQueueNums(Integer.parseInt(words[3]));
                topic.setWriteQueueNums(Integer.parseInt(words[3]));
                topic.setOrder(words[4].equals("FIFO"));
                topic.getAttributes().put("+message.type", words[4]);
                for (String broker : at) {
                    admin.createAndUpdateTopicConfig(broker, topic);
                }
                return "ok";
            case "group":
                SubscriptionGroupConfig group = new SubscriptionGroupConfig();
                group.setGroupName(words[2]);
                group.setConsumeMessageOrderly(Boolean.parseBoolean(words[3]));
                group.setRetryMaxTimes(Integer.parseInt(words[4]));
                for (String broker : at) {
                    admin.createAndUpdateSubscriptionGroupConfig(broker, group);
                }
                return "ok";
            case "drop":
                admin.deleteTopicInBroker(Set.of(at), words[2]);
                admin.deleteTopicInNameServer(Set.of(admin.getNamesrvAddr()), words[2]);
                return "ok";
            case "reset":
                int queue = Integer.parseInt(words[4]);
                admin.resetOffsetByQueueId(at[0], words[2], words[3], queue, Long.parseLong(words[5]));
                return "ok";
            case "user":
                List<String> all = List.of("Topic:*", "Group:*");
                for (String broker : at) {
                    admin.createUser(broker, words[2], words[3], "Normal");
                    admin.createAcl(broker, "User:" + words[2], all, List.of(words[4].split(",")), null, "Allow");
                }
                return "ok";
            case "brokers":
                return "ok " + admin.examineBrokerClusterInfo().getBrokerAddrTable().size();
            case "master":
                return "ok " + String.valueOf(
                    admin.examineBrokerClusterInfo().getBrokerAddrTable().get(words[1]).getBrokerAddrs().get(0L));
            case "synced":
                return "ok " + admin.getInSyncStateData(words[1], List.of(words[2]))
                    .getReplicasInfoTable().get(words[2]).getInSyncReplicas().size();
            case "queues":
                StringBuilder found = new StringBuilder("ok");
                for (var each : admin.examineTopicRouteInfo(words[1]).getQueueDatas()) {
                    found.append(' ').append(each.getBrokerName()).append('=').append(each.getReadQueueNums());
                }
                return found.toString();
            default:
                return "error unknown order " + words[0];
        }
    }
}
