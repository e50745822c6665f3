import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Makes topics and groups for tests, one order a line on standard input, one answer a line on standard output.
 * Arguments: name server, broker, and where access keys are demanded, key and secret.
 * Orders: `topic NAME QUEUES TYPE`, `group NAME ORDERLY RETRIES`, `drop NAME`, `brokers`.
 */
public final class Admin {
    private Admin() {
    }

    public static void main(String[] arguments) throws Exception {
        String names = arguments[0];
        String broker = arguments[1];
        DefaultMQAdminExt admin = arguments.length < 4
            ? new DefaultMQAdminExt(10_000L)
            : new DefaultMQAdminExt(new AclClientRPCHook(new SessionCredentials(arguments[2], arguments[3])), 10_000L);
        admin.setNamesrvAddr(names);
        admin.setInstanceName("tests");
        admin.setVipChannelEnabled(false);
        admin.start();
        System.out.println("started");
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                System.out.println(obey(admin, broker, line.split(" ")));
            } catch (Exception error) {
                System.out.println("error " + String.valueOf(error.getMessage()).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static String obey(DefaultMQAdminExt admin, String broker, String[] words) throws Exception {
        switch (words[0]) {
            case "topic":
                TopicConfig topic = new TopicConfig(words[1]);
                topic.setReadQueueNums(Integer.parseInt(words[2]));
                topic.setWriteQueueNums(Integer.parseInt(words[2]));
                topic.setOrder(words[3].equals("FIFO"));
                topic.getAttributes().put("+message.type", words[3]);
                admin.createAndUpdateTopicConfig(broker, topic);
                return "ok";
            case "group":
                SubscriptionGroupConfig group = new SubscriptionGroupConfig();
                group.setGroupName(words[1]);
                group.setConsumeMessageOrderly(Boolean.parseBoolean(words[2]));
                group.setRetryMaxTimes(Integer.parseInt(words[3]));
                admin.createAndUpdateSubscriptionGroupConfig(broker, group);
                return "ok";
            case "drop":
                admin.deleteTopicInBroker(Set.of(broker), words[1]);
                admin.deleteTopicInNameServer(Set.of(admin.getNamesrvAddr()), words[1]);
                return "ok";
            case "brokers":
                return "ok " + admin.examineBrokerClusterInfo().getBrokerAddrTable().size();
            default:
                return "error unknown order " + words[0];
        }
    }
}
